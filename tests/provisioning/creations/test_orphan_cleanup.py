"""A creation that has lost its claim: its volume is found and deleted, unless somebody uses it."""

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.errors import Unavailable
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import UID, Bench, late, rpc, run
from tests.harness.provisioning.journal import JournalInMemory, with_journal


def after_a_death(*, creates: list[CreatedVolume | Exception] | None = None, policy: str = "Delete") -> tuple[Bench, JournalInMemory]:
    """One process has begun and died before it knew; the claim is deleted; the next process starts."""
    first = late(driver=ScriptedDriver(creates=[rpc(Code.DEADLINE_EXCEEDED)]))
    first.see(class_=samples.class_(reclaimPolicy=policy))
    paper = with_journal(first)
    first.claim()
    bench = Bench(driver=ScriptedDriver(creates=creates or [CreatedVolume("test-volume-id", 100)]))
    bench.see(class_=samples.class_())
    with_journal(bench, paper)
    assert run(bench.room.take_over()) == [UID]
    return bench, paper


def test_what_the_driver_rules_out_is_struck_out_and_what_it_leaves_open_is_kept() -> None:
    for answer, kept in [
        (Code.INVALID_ARGUMENT, False),
        (Code.RESOURCE_EXHAUSTED, False),
        (Code.ALREADY_EXISTS, False),
        (Code.DEADLINE_EXCEEDED, True),
        (Code.ABORTED, True),
        (Code.INTERNAL, True),
        (Code.UNKNOWN, True),
    ]:
        bench = late(driver=ScriptedDriver(creates=[rpc(answer)]))
        paper = with_journal(bench)
        bench.claim()
        assert bool(paper.lines) == kept


def test_a_volume_whose_object_the_watch_has_not_shown_yet_is_left_alone_too() -> None:
    bench, paper = after_a_death()
    bench.kube.objects["persistentvolumes", "test-testi"] = samples.volume_json(status={"phase": "Bound"})
    bench.claim()
    assert bench.driver.asked == [] and paper.lines == {}


def test_one_that_is_stored_between_question_and_answer_is_not_deleted() -> None:
    bench, paper = after_a_death()

    async def meanwhile(*_: object, **__: object) -> CreatedVolume:
        bench.kube.objects["persistentvolumes", "test-testi"] = samples.volume_json(status={"phase": "Bound"})
        return CreatedVolume("test-volume-id", 100)

    bench.driver.create_volume = meanwhile  # type: ignore[method-assign]
    bench.claim()
    assert bench.driver.count("delete") == 0 and paper.lines == {}


def test_a_claim_the_cache_does_not_show_yet_and_that_is_ours_again_is_not_robbed() -> None:
    bench, _ = after_a_death()
    bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "foo"})
    bench.claim()
    assert bench.driver.asked == []


def test_a_claim_that_another_node_has_by_now_leaves_nothing_here() -> None:
    bench, paper = after_a_death()
    bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "bar"})
    bench.kube.objects["persistentvolumes", "test-testi"] = samples.volume_json(spec={"nodeAffinity": samples.placed("bar")})
    bench.now += 60.0
    bench.claim()
    assert bench.driver.count("delete") == 1 and paper.lines == {}


def test_a_volume_that_a_claim_is_bound_to_is_left_alone_though_its_object_is_gone() -> None:
    for policy in ["Delete", "Retain"]:
        bench, paper = after_a_death(policy=policy)
        bench.kube.objects["persistentvolumeclaims", "fake-pvc"] = samples.claim_json(volumeName="test-testi")
        assert bench.claim() is None
        assert bench.driver.asked == [] and paper.suspect().suspect


def test_while_anything_is_unknown_it_is_asked_again() -> None:
    bench, paper = after_a_death(creates=[rpc(Code.ABORTED), CreatedVolume("test-volume-id", 100)])
    bench.kube.failures["get"] = [Unavailable("away")]
    until = bench.claim()
    assert until is not None and bench.driver.asked == []
    until = bench.claim_when_due()
    assert until is not None and paper.lines
    bench.driver.deletes = [rpc(Code.INTERNAL), None]
    assert bench.claim_when_due() is not None and paper.lines
    assert bench.claim_when_due() is None and not paper.lines


def test_a_driver_that_denies_without_a_reason_is_believed_the_tenth_time_and_a_leak_is_suspected() -> None:
    bench, paper = after_a_death(creates=[rpc(Code.INTERNAL)])
    assert [bench.claim_when_due() is None for _ in range(10)] == [*[False] * 9, True]
    assert "10 times" in paper.suspect().suspect
    assert bench.value("csi_node_sidecar_suspected_leaks_total") == 1
