"""A PersistentVolume that was stored, and came and went before any watch showed it: nobody would ever bind its claim."""

from typing import Any

import pytest

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.errors import Forbidden
from sidecar.model.names import SELECTED_NODE
from sidecar.model.standing import Standing
from sidecar.provisioning.decisions import Wait
from sidecar.provisioning.progress import BELIEVED, Creating, Stored
from sidecar.provisioning.progress_table import MOST_DOUBTED, ProgressTable
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import UID, Bench, late, rpc

CLAIM, VOLUME = ("persistentvolumeclaims", "fake-pvc"), ("persistentvolumes", "test-testi")
AT = 100.0


def stored(**doors: Any) -> Bench:
    """It is stored and never seen; as the API server has it, the claim is still open and there is no PersistentVolume."""
    bench = late(**doors)
    assert bench.claim() is None
    bench.kube.objects[CLAIM] = samples.claim_json(annotations={SELECTED_NODE: "foo"})
    return bench


def reads(bench: Bench) -> list[str]:
    return [plural for verb, plural, _, _ in bench.kube.asked if verb == "get"]


def test_until_then_it_is_believed_and_nobody_is_asked() -> None:
    bench = stored()
    bench.now = AT + BELIEVED - 1
    assert bench.room.doubtful() == []
    assert bench.claim() is None
    assert (reads(bench), bench.driver.count("create")) == ([], 1)


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


def test_what_was_stored_while_they_were_listed_is_shown_by_the_watch_that_follows() -> None:
    bench = stored()
    bench.room.volumes_listed()
    assert bench.room.doubtful() == []
    bench.see(volume=samples.volume())
    bench.now = AT + BELIEVED
    assert bench.room.doubtful() == []
    assert bench.claim() is None
    assert reads(bench) == []


def test_a_list_with_it_raises_none() -> None:
    bench = stored().see(volume=samples.volume())
    bench.room.volumes_listed()
    bench.now += 10
    assert bench.room.doubtful() == []
    assert bench.claim() is None
    assert reads(bench) == []


def test_many_are_doubted_a_hundred_at_a_time_the_longest_unseen_first() -> None:
    table = ProgressTable()
    for number in range(2000):
        table.advance(str(number), Stored.at(AT - number, f"handle-{number}"))
    now = AT + BELIEVED
    assert table.doubtful(now, shown=lambda uid: False) == [str(number) for number in range(1999, 1999 - MOST_DOUBTED, -1)]
    assert table.doubtful(now, shown=lambda uid: int(uid) >= 50) == [str(number) for number in range(49, -1, -1)]


def test_a_wait_for_something_else_does_not_change_when_it_is_doubted() -> None:
    bench = stored()
    before = bench.table.progress(UID)
    bench.room._let_be(UID, bench.room.claim_view(UID), Wait(AT + 1, None, "the driver is away"))
    assert bench.table.progress(UID) == before


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


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(None, id="gone"),
        pytest.param({"meta": {"uid": "another"}}, id="a-namesake"),
        pytest.param({"volumeName": "test-testi"}, id="bound"),
        pytest.param({"annotations": {SELECTED_NODE: "bar"}}, id="another-nodes"),
        pytest.param({"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, id="being-deleted"),
    ],
)
def test_nothing_is_made_for_a_claim_that_is_not_open_any_more(claim: dict[str, Any] | None) -> None:
    """What somebody has kept was bound, or its claim is gone: it is neither stored again nor deleted."""
    bench = stored()
    del bench.kube.objects[CLAIM]
    if claim is not None:
        bench.kube.objects[CLAIM] = samples.claim_json(**{"annotations": {SELECTED_NODE: "foo"}, **claim})
    bench.now = AT + BELIEVED
    assert bench.claim() == bench.now + BELIEVED
    assert (bench.driver.count("create"), bench.driver.count("delete")) == (1, 0)


def test_a_right_that_is_missing_proves_nothing() -> None:
    bench = stored()
    bench.kube.failures["get"] = [Forbidden("no", status=403)]
    bench.now = AT + BELIEVED
    assert bench.claim() == bench.now + BELIEVED
    assert bench.driver.count("create") == 1


def test_a_node_that_has_been_closed_since_makes_it_all_the_same_because_the_volume_is_here() -> None:
    bench = stored()
    bench.now, bench.standing = AT + BELIEVED, Standing(closed=True, why="cordoned")
    bench.claim()
    assert bench.driver.count("create") == 2
    assert bench.kube.wrote("replace") == []


def test_a_driver_that_does_not_answer_leaves_it_written_down() -> None:
    bench = stored(driver=ScriptedDriver(creates=[CreatedVolume("test-volume-id", 100), rpc(Code.DEADLINE_EXCEEDED)]))
    bench.now = AT + BELIEVED
    bench.claim()
    assert isinstance(bench.table.progress(UID), Creating)
    assert bench.table.records.get(UID) is not None
