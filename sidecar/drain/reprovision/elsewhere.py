"""Whether a replica can be on another node: its other volumes let it go, and one takes it and has room for what is made anew."""

from collections.abc import Mapping, Sequence

from sidecar.drain.judgement.pod_fates import running
from sidecar.drain.judgement.volumes import classify
from sidecar.drain.reprovision import made_anew, spread
from sidecar.drain.reprovision.facts import FoundClaim, keeping
from sidecar.drain.reprovision.lock import LocksView, Refusal
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import nodes
from sidecar.model.nodes import Pod
from sidecar.model.objects import Volume


def place(view: LocksView) -> Refusal | None:
    for name, found in view.claims:
        place = view.places.get(found.volume.name) if found and found.volume else None
        if place is None:
            return Refusal(Hindrance.NO_NODE_FITS, f"where claim {name} could go was not looked at")
        if not place.node and place.shortfall:
            return Refusal(Hindrance.NO_CAPACITY, f"{place.shortfall} bytes are missing on the node that comes closest")
        if not place.node:
            why = "; ".join(f"{node}: {why}" for node, why in place.excluded[:3]) or "there is no other node"
            return Refusal(Hindrance.NO_NODE_FITS, why)
    return _beside_the_others(view)


def _beside_the_others(view: LocksView) -> Refusal | None:
    """Free space for what is here is not all: other volumes of the pod and other replicas keep it off nodes, and templates ask for more."""
    workload, facts, snapshot = view.facts.workload, view.facts, view.snapshot
    if workload is not None and workload.spread.excess:
        return Refusal(Hindrance.NO_NODE_FITS, f"StatefulSet {workload.name}: {workload.spread.excess}")
    if workload is None or snapshot.surroundings is None or snapshot.node is None:
        return None
    if why := made_anew.no_volume(view.target, facts):
        return Refusal(Hindrance.NO_NODE_FITS, why)
    others = spread.Others(tuple(pod for pod in facts.pods if pod.name != view.target.pod), facts.labels, facts.beyond)
    nodes_there = (*snapshot.surroundings.nodes, snapshot.node)
    out = spread.shut_out(workload.spread, workload.replica(view.target.pod), others=others, nodes=nodes_there)
    out = {**out, **_not_reached(view)}
    claims = {claim.uid for claim in view.target.claims}
    held = tuple(item for item in classify(snapshot, running(snapshot)) if item.object.uid in claims)
    made = made_anew.as_made(held, view.target, facts, driver=snapshot.driver)
    if made == held and not any(node.name in out for node in snapshot.surroundings.nodes):
        return None
    why = spread.nowhere(made, out=out, snapshot=snapshot)
    return Refusal(Hindrance.NO_NODE_FITS, why) if why else None


def _not_reached(view: LocksView) -> Mapping[str, str]:
    """By node from which another volume of the pod, that goes along, is not reached: why."""
    found: dict[str, str] = {}
    around = view.snapshot.surroundings
    for name in _left(view):
        volume = each.volume if (each := view.facts.claims.get(name)) else None
        if volume is not None and volume.affinity is not None and around is not None and not _goes_by_itself(name, view):
            fitting = (node.name for node in around.nodes if not any(term.matches(node.name, node.labels) for term in volume.affinity))
            found |= dict.fromkeys(fitting, f"claim {name}, of driver {volume.driver}, is not reached from there")
    return found


def another_volume(view: LocksView) -> Refusal | None:
    """One of the pod that is not made anew and keeps it here."""
    return next(filter(None, (_keeps(name, view) for name in _left(view))), None)


def _left(view: LocksView) -> Sequence[str]:
    """Names of claims of the pod that are not made anew and may keep it here."""
    of_pod = keeping(view.pod) if view.pod else ()
    return sorted(set(of_pod) - {claim.name for claim in view.target.claims} - view.deleted)


def _keeps(name: str, view: LocksView) -> Refusal | None:
    """Of a claim of the pod that is not made anew: whether its pod could be elsewhere with it."""
    found = view.facts.claims.get(name)
    if view.pod and name in view.pod.ephemeral:
        return _waits_for(found, view.pod, view)
    if found is None or found.volume is None:
        return Refusal(Hindrance.POLICY_KEEPS, f"where claim {name} of the pod lies is not known")
    if found.volume.driver == view.snapshot.driver:
        return Refusal(Hindrance.POLICY_KEEPS, f"claim {name} of the pod is of this driver too, and was not judged with the others")
    if _is_elsewhere_too(found.volume, view):
        return None
    return Refusal(Hindrance.NO_NODE_FITS, f"claim {name}, of driver {found.volume.driver}, keeps the pod here")


def _waits_for(found: FoundClaim | None, pod: Pod, view: LocksView) -> Refusal | None:
    """A claim that goes with this pod, which has no node. One of an earlier pod of its name goes by itself."""
    if found is None or found.volume is None or _goes_by_itself(found.claim.name, view) or _is_elsewhere_too(found.volume, view):
        return None
    name, driver = found.claim.name, found.volume.driver
    who = "the pod is evicted before that" if driver == view.snapshot.driver else "delete the pod"
    why = f"claim {name}, of driver {driver}, keeps {pod.full_name}, which has no node, here, and goes with it: {who}"
    return Refusal(Hindrance.NO_NODE_FITS, why)


def _goes_by_itself(name: str, view: LocksView) -> bool:
    """It was made for an earlier pod of its name."""
    pod, found = view.pod, view.facts.claims.get(name)
    if pod is None or found is None or name not in pod.ephemeral:
        return False
    return found.claim.deleting or found.claim.owner is None or found.claim.owner.uid != pod.uid


def _is_elsewhere_too(volume: Volume, view: LocksView) -> bool:
    affinity, around = volume.affinity, view.snapshot.surroundings
    if affinity is None:
        return True
    others = () if around is None else around.nodes
    fitting = (node for node in others if node.ready == nodes.TRUE and not node.cordoned and not node.deleting)
    return any(term.matches(node.name, node.labels) for node in fitting for term in affinity)
