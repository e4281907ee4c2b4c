"""The report on a node that is gone: what it says, and whose report it is."""

import asyncio
import random
from dataclasses import replace

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds import TABLE, Kind
from hack.sim.world.node import DRIVER
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss import as_text, report
from sidecar.drain.node_loss.evidence import Evidence, Gone, Unproven
from sidecar.drain.node_loss.report import Left
from sidecar.drain.node_loss.surroundings_io import Surroundings
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.drain.node_loss.things import ClaimThere, volume_of
from sidecar.drain.remade import LostClaim
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, SNAPSHOT_CONTENTS, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness.drain.node_loss import CLEANING, REPORT, Watchman, announce, one_replica, play, vanish
from tests.harness.drain.simulated import Bench, wait

LOCAL = "local.example"

N1 = Suspect("n1", "uid-1")
LOSS = Gone(Machine("n1", "uid-1"), Evidence.NONE, 1000.0, "gone")


def claim(number: int) -> ClaimThere:
    return ClaimThere(LostClaim("shop", f"data-{number}", None), f"uid-{number}", "1", f"pv-{number}", deleting=False, lost_with="")


def stored(suspect: Suspect = N1, *, ack: str = "", owner: bool = False, left: Left | None = None) -> Json:
    head = report.head(suspect, LOCAL)
    meta = head["metadata"] | {"resourceVersion": "7"} | ({"annotations": {names.ACKNOWLEDGED: ack}} if ack else {})
    meta |= {"ownerReferences": [{"kind": names.NODE}]} if owner else {}
    return head | {"metadata": meta, "status": report.status(suspect, LOSS, left or Left((), ()), agent="v0", now=2000.0)}


def test_an_acknowledgement_counts_for_the_machine_that_the_report_is_on() -> None:
    assert report.acknowledged(stored(ack="me"), N1)
    assert not report.acknowledged(stored(), N1)
    assert not report.acknowledged(stored(ack=" "), N1)
    assert not report.acknowledged(stored(ack="me"), replace(N1, uid="uid-2")), "G1 another machine"
    assert not report.acknowledged(stored(ack="me", owner=True), N1), "the Node's own report, which it goes with"
    assert not report.acknowledged(stored(Suspect("n1", ""), ack="me"), Suspect("n1", "")), "nobody knows which machine"
    assert not report.acknowledged(None, N1)


def test_what_was_acknowledged_before_is_taken_off_with_the_owner() -> None:
    for was in [{"nodeUID": "uid-1", "verdicts": {}}, {"nodeUID": "uid-0", "gone": {"since": "x"}}, {}, {"gone": []}]:
        old = stored(ack="me", owner=True) | {"status": was}
        patch = report.head_patch(old, N1, LOCAL)
        assert patch is not None
        meta = patch["metadata"]
        assert meta["annotations"] == {names.ACKNOWLEDGED: None}
        assert meta["ownerReferences"] is None
        assert meta["resourceVersion"] == "7"
        assert report.head_patch(stored(ack="me"), N1, LOCAL) is None, "its own is left as it is"


def test_a_time_that_cannot_be_is_not_believed() -> None:
    for since in ["", "yesterday", "2999-01-01T00:00:00Z", 5, None]:
        wrong = stored()
        wrong["status"]["gone"]["since"] = since
        assert report.since(wrong, N1, now=3000.0) == 3000.0
        assert report.since(stored(), N1, now=3000.0) == 1000.0
        assert report.since(stored(), replace(N1, uid="uid-2"), now=3000.0) == 3000.0


def test_lists_are_bounded_and_counted() -> None:
    many = Left((), tuple(claim(number) for number in range(700)))
    gone = stored(left=many)["status"]["gone"]
    assert (len(gone["claims"]), gone["claimsTruncated"]) == (report.MOST_CLAIMS, 200)
    assert len(report.told_claims(stored(left=many), N1)) == report.MOST_CLAIMS


def test_only_what_changed_is_written() -> None:
    later = report.status(N1, LOSS, Left((), ()), agent="v0", now=9000.0)
    assert not report.differs(stored(), later)
    without = stored()
    without["status"]["gone"] = {key: value for key, value in without["status"]["gone"].items() if value != []}
    assert not report.differs(without, later), "an empty list need not be stored"
    assert report.differs(stored(), report.status(N1, replace(LOSS, evidence=Evidence.ANNOUNCED), Left((), ()), agent="v0", now=9000.0))


def test_each_event_says_the_way_out() -> None:
    for loss in (*(replace(LOSS, evidence=evidence) for evidence in Evidence), Unproven("no note", 0.0)):
        said = report.event(N1, loss, claim(1))
        assert "pv-1" in said and "delete this claim" in said and "back with its" in said


def test_people_read_of_it_with_the_next_step() -> None:
    said = as_text.told(stored(left=Left((), tuple(claim(number) for number in range(30)))))
    assert "Node n1 is missed since" in said
    assert f"kubectl annotate drainreport n1.{LOCAL} {names.ACKNOWLEDGED}=WHO" in said
    assert "shop/data-0" in said and "and 10 more" in said
    assert as_text.told({"spec": {"nodeName": "n1"}, "status": {"verdicts": {}}}) == ""


KINDS = (*TABLE, Kind(resource=SNAPSHOT_CONTENTS, fields={"spec": dict, "status": dict}, status=True))


def test_snapshots_of_its_volumes_are_told() -> None:
    def case(kinds: tuple[Kind, ...], told: list[str]) -> None:
        cluster = Cluster(clock=lambda: 0.0, rng=random.Random(1).random, kinds=kinds)
        if kinds is KINDS:
            for name, driver, handle in (("a", LOCAL, "h"), ("b", LOCAL, "other"), ("c", "other.example", "h")):
                spec = {"driver": driver, "source": {"volumeHandle": handle}}
                cluster.create(SNAPSHOT_CONTENTS, {"metadata": {"name": name}, "spec": spec})
        pv = {"metadata": {"name": "pv", "uid": "uid-pv"}, "spec": {"csi": {"driver": LOCAL, "volumeHandle": "h"}}}
        lost = volume_of(pv, LOCAL)
        assert lost is not None
        left = asyncio.run(Surroundings(InProcessApi(cluster), driver=LOCAL, attaches=False).left("n1", (lost,)))
        of = stored(left=left)
        assert [item["name"] for item in of["status"]["gone"]["snapshots"]] == told
        assert (left.unread, left.untold) == ((), ())
        assert all(name in as_text.told(of) for name in told)

    for kinds, told in [
        (KINDS, ["a"]),  # there are some
        (TABLE, []),  # without their type
    ]:
        case(kinds, told)


# --- Drivers and nodes whose names have an end in common: the name of a report is that of the node and that of the driver ---


FIRST, _, REST = DRIVER.partition(".")
NODE: Json = {"apiVersion": "v1", "kind": names.NODE, "name": f"n0.{FIRST}", "uid": "uid-9"}
ANOTHERS: Json = {
    **report.head(Suspect(f"n0.{FIRST}", "uid-9"), REST),
    "status": {"nodeUID": "uid-9", "schemaVersion": 1, "agentVersion": "v0"},
}


def test_the_report_of_another_node_by_another_driver_is_not_written_over() -> None:
    """Its node is there, and its own sidecar writes it. Without a report nothing is cleared away."""
    assert names.drain_report(f"n0.{FIRST}", REST) == REPORT
    seen = Watchman()

    async def story(bench: Bench) -> None:
        await one_replica(bench)
        await announce(bench)
        await vanish(bench, collected=True)
        head = {**ANOTHERS, "metadata": {"name": REPORT, "ownerReferences": [NODE], "annotations": {names.ACKNOWLEDGED: "me"}}}
        before = await bench.you.create(DRAIN_REPORTS, head)
        await wait(bench, 1500)
        assert await bench.you.get(DRAIN_REPORTS, REPORT) == before

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []
