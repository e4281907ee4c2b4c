"""What a stopped sidecar knew of its node's volumes, compared with what another node can see of them.

Its driver may list volumes under a former name of the node, and its pods may have mounted volumes that say nothing of nodes: once these
pods are gone, nobody else can tell that the volumes lie there. The report that it left behind names them, and remembers how many
there were.
"""

from collections.abc import Mapping
from typing import Any, Final

from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import stored
from sidecar.drain.publish.stored import mapping, of_this_node, status_of
from sidecar.drain.publish.validity import UNKNOWN
from sidecar.drain.publish.withdrawn import told_status
from sidecar.drain.vocabulary import VolumeClass

# Those with a PersistentVolume, less what goes with its pod.
_LASTING: Final = (VolumeClass.IN_USE, VolumeClass.IDLE, VolumeClass.RELEASING, VolumeClass.RETAINED, VolumeClass.RENAMED)


def known_volumes(report: Mapping[str, Any] | None, *, node_uid: str) -> int | None:
    """How many lasting volumes the node's own sidecar has counted; None: it left no report of this node, or had not judged it."""
    status = of_this_node(status_of(report), node_uid)
    if told_status(mapping(mapping(status, "verdicts"), "retire")) in ("", UNKNOWN):
        return None
    classes = mapping(mapping(status, "counts"), "classes")
    counted = [count for class_ in _LASTING if isinstance(count := classes.get(class_, 0), int)]
    return sum(counted) if len(counted) == len(_LASTING) else None


def unseen_volumes(report: Mapping[str, Any] | None, judged: Assessment, *, node_uid: str) -> tuple[str, ...]:
    """Names of volumes that only the node's own sidecar knew to be there, and that are not seen there from here."""
    seen = {volume.name for volume in judged.volumes}
    return tuple(item.volume for item in stored.hidden(report, node_uid=node_uid) or () if item.volume not in seen)


def seen_volumes(judged: Assessment) -> int:
    """How many of them can be seen from here."""
    return sum(volume.class_ in _LASTING for volume in judged.volumes)
