"""For how long a pod that may not go lets others go first."""

from sidecar.drain.reprovision.kept import KeptPods
from sidecar.drain.reprovision.lock import Refusal
from sidecar.drain.vocabulary import Hindrance

DENIED = Refusal(Hindrance.PAUSED, "a webhook denied it")


def kept(times: int) -> KeptPods:
    pods = KeptPods()
    for _ in range(times):
        pods.note("uid-0", DENIED, now=100.0)
    return pods


def test_one_refusal_may_pass_and_after_two_others_are_tried_first_for_a_while() -> None:
    assert kept(1).why("uid-0", now=100.0) is None
    assert kept(2).why("uid-0", now=219.0) == DENIED
    assert kept(2).why("uid-1", now=219.0) is None


def test_after_that_while_it_is_counted_anew() -> None:
    pods = kept(2)
    assert pods.why("uid-0", now=220.0) is None
    pods.note("uid-0", DENIED, now=221.0)
    assert pods.why("uid-0", now=222.0) is None


def test_a_pod_that_is_gone_is_forgotten() -> None:
    pods = kept(2)
    pods.see({"uid-1"})
    assert pods.why("uid-0", now=100.0) is None
