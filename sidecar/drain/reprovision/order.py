"""What a StatefulSet's controller waits for: where that is the replica that is to be made anew, waiting for the controller has no end."""

from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.workload import Workload
from sidecar.model import names


def makes_after(workload: Workload, pod: str, name: str, facts: Facts) -> bool:
    """The controller makes `name` only once `pod` is ready."""
    own, other, there = workload.ordinal(pod), workload.ordinal(name), facts.pod(pod)
    return workload.ordered and own is not None and other is not None and own < other and not (there is not None and there.ready)


def rollout_waits_for(workload: Workload, pod: str, facts: Facts) -> bool:
    """This pod has no node, and until it is ready the rollout takes no other one away.

    An ordered set stops at the first pod that is not ready. Any other is rolled out from its last pod to its first, and stops at one of the
    new revision that is not ready.
    """
    there, own = facts.pod(pod), workload.ordinal(pod)
    if there is None or there.node or there.deleting_since or own is None or not workload.one_by_one:
        return False
    if workload.ordered:
        return True
    later = (facts.pod(workload.pod(ordinal)) for ordinal in workload.ordinals if ordinal >= own)
    return all(each is not None and each.labels.get(names.POD_REVISION) == workload.revision for each in later)
