"""The lease of a node that has a gate: its own sidecar renews it, as its sign of life, for as long as the gate stands, and while it is open
on a node with volumes, because only a sidecar that looks makes that safe.

It is made before the gate and deleted after it, so that no gate is ever without one. When it runs out, the sidecar of another node may
take it, and looks after the gate from then on (`takeover`); the node's own one takes it back as soon as it runs again.
"""

from sidecar.drain.leases import Terms
from sidecar.model import names


def terms(node: str, node_uid: str, driver: str, *, namespace: str, holder: str) -> Terms:
    """The lease of one node, held by that node's sidecar or by another's."""
    labels = {names.GUARDED_NODE: node_uid, names.GUARDED_FOR: driver}
    return Terms(name(node, node_uid, driver), namespace, labels, node, node_uid, holder)


def name(node: str, node_uid: str, driver: str) -> str:
    """That of the gate it is about."""
    return names.guard(node, node_uid, driver)
