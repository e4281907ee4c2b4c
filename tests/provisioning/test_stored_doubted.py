"""A PersistentVolume that was stored, and came and went before any watch showed it: nobody would ever bind its claim."""

from typing import Any

from sidecar.model.names import SELECTED_NODE
from sidecar.provisioning.progress import BELIEVED, Stored
from sidecar.provisioning.progress_table import MOST_DOUBTED, ProgressTable
from tests.harness import samples
from tests.harness.provisioning.bench import UID, Bench, late

CLAIM, VOLUME = ("persistentvolumeclaims", "fake-pvc"), ("persistentvolumes", "test-testi")
AT = 100.0


def stored(**doors: Any) -> Bench:
    """It is stored and never seen; as the API server has it, the claim is still open and there is no PersistentVolume."""
    bench = late(**doors)
    assert bench.claim() is None
    bench.kube.objects[CLAIM] = samples.claim_json(annotations={SELECTED_NODE: "foo"})
    return bench


def test_then_it_is_made_anew_as_one_volume_and_one_object() -> None:
    bench = stored()
    bench.now = AT + BELIEVED
    assert bench.room.doubtful() == [UID]
    assert bench.claim() is None
    first, again = bench.kube.wrote("create")
    assert first["spec"]["csi"]["volumeHandle"] == again["spec"]["csi"]["volumeHandle"]
    assert isinstance(bench.table.progress(UID), Stored)
    assert bench.table.records.get(UID) is None


def test_a_list_without_it_raises_the_doubt_soon() -> None:
    bench = stored()
    bench.now = AT + 5
    bench.room.volumes_listed()
    bench.now += 10
    assert bench.room.doubtful() == [UID]
    bench.claim()
    assert bench.driver.count("create") == 2


def test_many_are_doubted_a_hundred_at_a_time_the_longest_unseen_first() -> None:
    table = ProgressTable()
    for number in range(2000):
        table.advance(str(number), Stored.at(AT - number, f"handle-{number}"))
    now = AT + BELIEVED
    assert table.doubtful(now, shown=lambda uid: False) == [str(number) for number in range(1999, 1999 - MOST_DOUBTED, -1)]
    assert table.doubtful(now, shown=lambda uid: int(uid) >= 50) == [str(number) for number in range(49, -1, -1)]


def test_one_that_is_there_is_asked_for_ever_more_seldom() -> None:
    bench = stored()
    bench.kube.objects[VOLUME] = samples.volume_json(spec={"claimRef": {"uid": UID, "namespace": "default", "name": "fake-pvc"}})
    bench.now, pauses = AT + BELIEVED, []
    for _ in range(4):
        due = bench.claim()
        assert due is not None
        pauses.append(due - bench.now)
        bench.now = due
    assert pauses == [BELIEVED, 2 * BELIEVED, 4 * BELIEVED, 8 * BELIEVED]
    assert bench.driver.count("create") == 1


def test_nothing_is_made_for_a_claim_that_is_not_open_any_more() -> None:
    """What somebody has kept was bound, or its claim is gone: it is neither stored again nor deleted."""
    for claim in [
        None,
        {"meta": {"uid": "another"}},
        {"volumeName": "test-testi"},
        {"annotations": {SELECTED_NODE: "bar"}},
        {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ]:
        bench = stored()
        del bench.kube.objects[CLAIM]
        if claim is not None:
            bench.kube.objects[CLAIM] = samples.claim_json(**{"annotations": {SELECTED_NODE: "foo"}, **claim})
        bench.now = AT + BELIEVED
        assert bench.claim() == bench.now + BELIEVED
        assert (bench.driver.count("create"), bench.driver.count("delete")) == (1, 0)
