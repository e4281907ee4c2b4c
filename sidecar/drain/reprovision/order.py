"""What a StatefulSet's controller waits for: where that is the replica that is to be made anew, waiting for the controller has no end."""

from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.workload import Workload
from sidecar.model import names


def makes_after(workload: Workload, pod: str, name: str, facts: Facts) -> bool:
    """The controller makes `name` only once `pod` is ready."""
    there = facts.pod(pod)
    is_later = workload.wants(pod) and workload.wants(name) and _ordinal(pod) < _ordinal(name)
    return workload.ordered and is_later and not (there is not None and there.ready)


def rollout_waits_for(workload: Workload, pod: str, facts: Facts) -> bool:
    """This pod has no node, and until it is ready the rollout takes no other one away.

    An ordered set stops at the first pod that is not ready. Any other is rolled out from its last pod to its first, and stops at one of the
    new revision that is not ready.
    """
    there = facts.pod(pod)
    if there is None or there.node or there.deleting_since or not workload.wants(pod) or not workload.one_by_one:
        return False
    later = (each for each in facts.pods if workload.wants(each.name) and _ordinal(each.name) >= _ordinal(pod))
    return workload.ordered or all(each.labels.get(names.POD_REVISION) == workload.revision for each in later)


def _ordinal(pod: str) -> int:
    """Of a name that the set wants."""
    return int(pod.rpartition("-")[2])
