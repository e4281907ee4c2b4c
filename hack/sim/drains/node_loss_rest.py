"""What must be the case in a world of node loss once all is well again and long enough has passed: all that may go is gone, and no more.

What is expected of a lost machine goes by what is stored of it, for a note that somebody has taken keeps everything. Capacity objects of
gone nodes are not awaited: sidecars look for them every few hours.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hack.sim.drains.node_loss_plan import CLEANUP
from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins import stateful_set_objects as objects
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, LEASES, NODES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.node_loss_world import NodeLossWorld

NOT_CLEARED: Final = "not cleared"
NOT_WHOLE: Final = "not whole"
WITHOUT_REASON: Final = "without reason"


def findings(world: "NodeLossWorld") -> Iterator[tuple[str, str]]:
    yield from ((NOT_CLEARED, what) for what in _not_cleared(world))
    yield from ((WITHOUT_REASON, what) for what in _without_reason(world))
    yield from ((NOT_WHOLE, what) for what in _not_whole(world))


def _not_cleared(world: "NodeLossWorld") -> Iterator[str]:
    for volume in world.cluster.store.all_of(VOLUMES):
        if not _may_be_cleared(world, volume):
            continue
        name, claim = volume["metadata"]["name"], _claim_of(world, volume)
        if claim is not None and world.losses.is_made_again(claim) and not _is_used(world, claim):
            yield f"claim {claim['metadata']['name']} is there, whose volume {name} is lost with {_note(volume, names.LIES_ON)}"
        if (volume["spec"]["persistentVolumeReclaimPolicy"], volume["status"].get("phase")) == ("Delete", "Released"):
            yield f"{name} is there, which is lost with {_note(volume, names.LIES_ON)}"


def _without_reason(world: "NodeLossWorld") -> Iterator[str]:
    store = world.cluster.store
    for claim in store.all_of(CLAIMS):
        mark = _note(claim, names.LOST_WITH)
        if mark and not _is_lost(world, mark):
            yield f"claim {claim['metadata']['name']} says that its data was lost with {mark}, which is not a lost machine"
    for lease in store.all_of(LEASES):
        for owner in lease["metadata"].get("ownerReferences") or ():
            if store.find(NODES, owner["name"]) is None:
                yield f"Lease {lease['metadata']['name']} of {owner['name']} is there, which is gone"
    for report in store.all_of(DRAIN_REPORTS):
        status = report.get("status") or {}
        mark = f"{report['spec']['nodeName']}/{status.get('nodeUID') or ''}"
        about = [volume for volume in store.all_of(VOLUMES) if _note(volume, names.LIES_ON) == mark or mark.endswith("/")]
        if status.get("gone") and (store.find(NODES, report["spec"]["nodeName"]) is not None or not about):
            yield f"the report {report['metadata']['name']} says that the node is gone, and it is there or has left nothing"


def _not_whole(world: "NodeLossWorld") -> Iterator[str]:
    """Replicas that could run: what they wait for is no volume of a machine that is lost."""
    store = world.cluster.store
    for workload in store.all_of(STATEFUL_SETS):
        for ordinal in objects.ordinals(workload):
            name = f"{workload['metadata']['name']}-{ordinal}"
            pod = store.find(PODS, name, NAMESPACE)
            if pod is not None and Pod.of(pod).ready:
                continue
            wanted = [claim for claim in store.all_of(CLAIMS) if pod is not None and _full(claim) in claims_of(pod)]
            volumes = [world.losses.volume_of(claim) for claim in wanted]
            if not any(world.losses.machine_of(volume) in world.lost for volume in volumes if volume is not None):
                yield f"{name} does not run, and no volume of it is on a machine that is lost"


# --- what is said ---------------------------------------------------------------------------------------------------------


def _may_be_cleared(world: "NodeLossWorld", volume: Json) -> bool:
    """Its machine is lost, it says so itself, and somebody has said that its disks do not come back."""
    mark, store = _note(volume, names.LIES_ON), world.cluster.store
    if CLEANUP not in world.plan.args or not _is_lost(world, mark):
        return False
    together = [each for each in store.all_of(VOLUMES) if _note(each, names.LIES_ON) == mark]
    node, _, uid = mark.partition("/")
    report = store.find(DRAIN_REPORTS, names.drain_report(node, DRIVER))
    if all(_note(each, names.LEAVING) == mark for each in together):
        return not _waits_for_another(world, report, mark)
    acknowledged = report is not None and _note(report, names.ACKNOWLEDGED) and (report.get("status") or {}).get("nodeUID") == uid
    return bool(acknowledged)


def _waits_for_another(world: "NodeLossWorld", report: Json | None, mark: str) -> bool:
    """The report of the name is about another machine that is announced too, and more is left of it than kept data: that comes first."""
    first = f"{mark.partition('/')[0]}/{((report or {}).get('status') or {}).get('nodeUID') or ''}"
    of_first = [each for each in world.cluster.store.all_of(VOLUMES) if _note(each, names.LIES_ON) == first]
    if first == mark or any(_note(each, names.LEAVING) != first for each in of_first):
        return False
    return any((each["status"].get("phase"), each["spec"]["persistentVolumeReclaimPolicy"]) != ("Released", "Retain") for each in of_first)


def _is_lost(world: "NodeLossWorld", mark: str) -> bool:
    node, _, uid = mark.partition("/")
    return node in world.lost and world.cluster.store.find(NODES, node) is None and bool(uid)


def _claim_of(world: "NodeLossWorld", volume: Json) -> Json | None:
    ref = volume["spec"].get("claimRef") or {}
    claim = world.cluster.store.find(CLAIMS, ref.get("name", ""), ref.get("namespace", ""))
    bound = (
        claim is not None and claim["metadata"]["uid"] == ref.get("uid") and claim["spec"].get("volumeName") == volume["metadata"]["name"]
    )
    return claim if bound else None


def _is_used(world: "NodeLossWorld", claim: Json) -> bool:
    return any(pod["spec"].get("nodeName") and _full(claim) in claims_of(pod) for pod in world.cluster.store.all_of(PODS))


def _full(claim: Json) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _note(obj: Json, key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")
