"""The sign of life of a node that has a gate: a lease which the node's sidecar renews as long as the gate stands.

It is there before the gate and goes after it, so that no gate is ever without one. When it runs out, the sidecar of another node may
take it, and looks after the gate from then on (`takeover`); the node's own one takes it back as soon as it runs again.
"""

from dataclasses import dataclass

from sidecar.drain import leases
from sidecar.drain.leases import Lease
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json


@dataclass(frozen=True, slots=True)
class SignView:
    """All that the rule looks at."""

    now: float
    """Wall clock."""
    node: Node
    """This process's own."""
    driver: str
    namespace: str
    stands: bool
    """The gate stands, or is about to be built."""
    lease: Lease | None
    """As it is stored under `name`."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be written."""

    why: str


@dataclass(frozen=True, slots=True)
class Give:
    """Create the lease, or replace the one that is there."""

    body: Json
    replaces: bool
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """Delete the lease, on condition that it still is this one."""

    lease: Lease
    why: str


Decision = Rest | Give | End


def decide(view: SignView) -> Decision:
    """The node's own sidecar needs nobody's leave: whoever has the lease meanwhile gives way."""
    lease, me = view.lease, leases.identity(view.node.uid, view.driver)
    if lease is None:
        return _give(view, "there is a gate", "") if view.stands else Rest("there is no gate")
    if lease.holder == me and not view.stands:
        return End(lease, "there is no gate any more")
    if lease.holder != me:
        return _give(view, f"this node's sidecar runs again, and {lease.holder or 'nobody'} had its lease", lease.resource_version)
    if lease.is_fresh(view.now):
        return Rest("the sign of life is fresh")
    return _give(view, "the sign of life is renewed", lease.resource_version)


def name(node_uid: str, driver: str) -> str:
    """That of the gate it is about."""
    return names.guard(node_uid, driver)


def body(lease_of: Node, driver: str, *, namespace: str, holder: str, now: float, resource_version: str) -> Json:
    """The lease of one node, held by that node's sidecar or by another's."""
    return leases.body(
        name(lease_of.uid, driver),
        namespace=namespace,
        labels={names.GUARDED_NODE: lease_of.uid, names.GUARDED_FOR: driver},
        node=lease_of.name,
        node_uid=lease_of.uid,
        holder=holder,
        now=now,
        resource_version=resource_version,
    )


def _give(view: SignView, why: str, resource_version: str) -> Give:
    holder = leases.identity(view.node.uid, view.driver)
    made = body(view.node, view.driver, namespace=view.namespace, holder=holder, now=view.now, resource_version=resource_version)
    return Give(made, bool(resource_version), why)
