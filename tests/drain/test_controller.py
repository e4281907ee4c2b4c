"""The whole program on the embedded API server, in virtual time: a node is cordoned, tainted, emptied, and let be."""

import json
from dataclasses import replace

import pytest

from hack.sim.cluster import Call
from hack.sim.world.network import Latency
from hack.sim.world.node import DRIVER
from sidecar.kube.api import (
    BUDGETS,
    CLAIMS,
    DEPLOYMENTS,
    DRAIN_REPORTS,
    EVENTS,
    LEASES,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PODS,
    SNAPSHOT_CONTENTS,
    VOLUMES,
)
from sidecar.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.standing import OPEN, Standing
from tests.harness.drain.simulated import (
    EVACUATE,
    EVACUATING,
    JUDGING,
    RECORD,
    STATE,
    Json,
    Story,
    all_of,
    change,
    node_of,
    play,
    report_of,
    running,
    wait,
    with_pod,
)

FOR_A_MINUTE = "a pod used it until a moment ago, or may have: that counts for a minute"
GATE = ("--drain-gate-image=pause",)


def started(node: Json) -> str:
    return str(json.loads(node["metadata"]["annotations"][RECORD])["startedAt"])


async def slots(bench: Story) -> list[Json]:
    return [lease for lease in await all_of(bench, LEASES) if names.SLOT_FOR in lease["metadata"]["labels"]]


async def reasons(bench: Story) -> list[str]:
    """One for each time it was told: what is told again only counts up in the event that is there."""
    return [event["reason"] for event in await all_of(bench, EVENTS) for _ in range(event.get("count", 1))]


async def times(bench: Story, reason: str) -> int:
    return sum(event.get("count", 1) for event in await all_of(bench, EVENTS) if event["reason"] == reason)


def standing_of(bench: Story) -> Standing:
    sidecar = bench.sidecar("n0")
    assert sidecar is not None and sidecar.drains is not None
    return sidecar.drains.room.standing()


def condition(node: Json, kind: str) -> str:
    found = [item["status"] for item in node["status"]["conditions"] if item["type"] == names.condition(DRIVER, kind)]
    return found[0] if found else ""


def gate_by_metrics(bench: Story) -> str:
    sidecar = bench.sidecar("n0")
    assert sidecar is not None and sidecar.drains is not None
    numbers = sidecar.drains.room.numbers()
    return numbers.gate if numbers is not None else ""


def phase(bench: Story, name: str) -> str:
    return next((item["status"].get("phase", "") for item in bench.cluster.store.all_of(CLAIMS) if item["metadata"]["name"] == name), "")


def test_drain_D1_an_idle_volume_blocks_retiring_and_no_reboot() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await wait(bench, 5)
        (blocker,) = (await report_of(bench))["blockers"]
        assert (blocker["reason"], blocker["message"]) == ("VolumeInUse", FOR_A_MINUTE)
        await wait(bench, 65)
        report = await report_of(bench)
        assert (report["verdicts"]["drain"]["status"], report["verdicts"]["retire"]["status"]) == ("True", "False")
        (blocker,) = report["blockers"]
        assert (blocker["reason"], blocker["namespace"], blocker["name"], blocker["class"]) == ("LastCopy", "default", "a", "Idle")
        node = await node_of(bench)
        assert (condition(node, names.DRAIN_READY), condition(node, names.RETIRE_READY)) == ("True", "False")
        assert (await report_of(bench, "n1"))["verdicts"]["retire"]["status"] == "True"
        await change(bench, "n0", {"unschedulable": True}, annotations={names.DRAIN_INTENT: "retire"})
        bench.nodes["n0"].kill()
        await wait(bench, 12)
        assert (await report_of(bench))["blockers"][0]["message"] == FOR_A_MINUTE

    play(story)


def test_drain_G3_steady_state_writes_nothing_but_a_heartbeat() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 100)
        mark = len(bench.transcript.lines)
        await wait(bench, 890)
        writes = [line for line in bench.transcript.lines[mark:] if "patch" in line or "create" in line or "update" in line]
        writes = [line for line in writes if names.watch(DRIVER) not in line]
        about_nodes = [line for line in writes if " nodes" in line]
        about_reports = [line for line in writes if "nodedrainreports" in line]
        assert len(about_nodes) <= 2 * 3, "of two nodes: conditions every five minutes"
        assert len(about_reports) <= 2 * 3, about_reports
        assert len(about_nodes) + len(about_reports) == len(writes), writes

    play(story)


def test_at_rest_a_node_with_volumes_asks_for_at_most_four_lists_in_ten_minutes() -> None:
    lists: list[str] = []

    def count(call: Call) -> None:
        # It is the looker of its driver too, which lists Nodes; and the type of snapshots is not served here, and is asked for again.
        if call.verb == "list" and call.resource not in (NODES, SNAPSHOT_CONTENTS):
            lists.append(str(call))

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 1500)
        lists.clear()
        await wait(bench, 600)
        assert 0 < len(lists) <= 4, lists

    play(story, args=(*JUDGING, "--drain-gate-image=pause"), nodes=("n0",), refuse=count)


def test_drain_A1_A4_the_taint_starts_an_evacuation_and_its_removal_undoes_it() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 5)
        before = await node_of(bench)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 5)
        during = await node_of(bench)
        assert during["metadata"]["labels"][STATE] in ("Pending", "InProgress")
        begun = started(during)
        await wait(bench, 30)
        during = await node_of(bench)
        assert (during["metadata"]["labels"][STATE], started(during)) == ("InProgress", begun)
        assert STATE not in (await node_of(bench, "n1"))["metadata"]["labels"]
        assert "BlocksNodeDrain" in await reasons(bench)
        await change(bench, "n0", {"taints": None})
        await wait(bench, 10)
        after = await node_of(bench)
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert not [key for key in after["metadata"].get("annotations") or {} if names.GROUP in key]

    play(story, args=EVACUATING)


def test_drain_A3_success_is_told_once_and_only_when_nothing_is_left() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "InProgress"
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await bench.you.delete(CLAIMS, "a", namespace="default")
        await wait(bench, 60)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "Success"
        assert await all_of(bench, VOLUMES) == []
        assert await slots(bench) == []
        bench.nodes["n0"].kill()
        await wait(bench, 400)
        told = [event for event in await all_of(bench, EVENTS) if event["reason"] == "EvacuationSucceeded"]
        assert len(told) == 1 and told[0].get("count", 1) == 1

    play(story, args=EVACUATING)


def test_drain_B2_B5_the_deadline_counts_from_the_start_that_is_noted() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 360)
        bench.nodes["n0"].kill()
        await wait(bench, 200)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "InProgress"
        await wait(bench, 60)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "Failed"
        report = await report_of(bench)
        assert report["verdicts"]["retire"]["status"] == "False" and report["evacuation"]["next"].startswith("DeadlineExceeded: ")
        assert len(await all_of(bench, VOLUMES)) == 1

    play(story, args=(*EVACUATING, "--evacuation-deadline=10m"))


def test_a_report_that_was_edited_by_hand_is_put_right() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 5)
        forged = {"status": {"verdicts": {"retire": {"status": "True"}}, "blockers": []}}
        name = names.drain_report("n0", DRIVER)
        await bench.you.patch(DRAIN_REPORTS, name, forged, content_type=MERGE_PATCH, subresource="status")
        await wait(bench, 310)
        report = await report_of(bench)
        assert report["verdicts"]["retire"]["status"] == "False" and len(report["blockers"]) == 1

    play(story, nodes=("n0",))


def test_drain_B3_errors_of_the_api_server_put_no_deadline_off() -> None:
    broken: list[bool] = []

    def refuse(call: Call) -> ApiError | None:
        marks = (call.verb, call.resource) == ("patch", NODES)
        return Unavailable("no answer") if broken and not marks and call.verb not in ("list", "watch") else None

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        broken.append(True)
        await wait(bench, 595)
        node = await node_of(bench)
        assert node["metadata"]["labels"][STATE] == "Failed"
        assert len(await all_of(bench, VOLUMES)) == 1

    play(story, args=(*EVACUATING, "--evacuation-deadline=10m"), nodes=("n0",), refuse=refuse)


def test_drain_B3_B5_an_override_by_the_deadline_opens_the_gate_and_is_told_once() -> None:
    broken: list[bool] = []

    def refuse(call: Call) -> ApiError | None:
        return Unavailable("a webhook of nodes is down") if broken and (call.verb, call.resource) == ("patch", NODES) else None

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        broken.append(True)
        await wait(bench, 500)
        assert len(await all_of(bench, BUDGETS)) == 1
        await wait(bench, 60)
        assert (await all_of(bench, BUDGETS), await times(bench, "EvacuationOverridden")) == ([], 1)
        broken.clear()
        await wait(bench, 600)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "Overridden"
        assert (await all_of(bench, BUDGETS), await times(bench, "EvacuationOverridden")) == ([], 1)

    args = (*EVACUATING, *GATE, "--evacuation-deadline=10m", "--evacuation-expiry=Override")
    play(story, args=args, nodes=("n0",), refuse=refuse)


def test_without_the_rights_volumes_are_made_as_ever_and_what_is_missing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    theirs = (DRAIN_REPORTS, PODS, BUDGETS, NAMESPACES)

    def refuse(call: Call) -> ApiError | None:
        foreign = call.resource in theirs or (call.verb, call.resource) == ("patch", NODES)
        return Forbidden(f"cannot {call.verb} {call.resource}", status=403) if foreign else None

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 400)
        sidecar = bench.sidecar("n0")
        assert sidecar is not None and sidecar.drains is not None
        numbers = sidecar.drains.room.numbers()
        assert numbers is not None and numbers.ready == {"reboot": None, "retire": None}
        scopes = {row.path: str(row.state) for row in bench.nodes["n0"].tools.health.rows()}  # type: ignore[union-attr]
        assert "the node's conditions, the report; the log says why" in scopes["drain"] and "cannot" not in scopes["drain"]

    play(story, nodes=("n0",), refuse=refuse)
    complaints = [record for record in caplog.records if record.getMessage() == "Drain decisions are incomplete"]
    told = [str(vars(complaint)["fields"]) for complaint in complaints]
    assert len(told) == len(set(told)) <= 2, "once, and once more with what is asked about the first volume"
    assert all("cannot patch nodes" in line for line in told) and "cannot list namespaces" in told[-1]


def test_without_the_crd_the_rest_is_written_and_events_are_told_once() -> None:
    def refuse(call: Call) -> ApiError | None:
        return NotFound("the server could not find the requested resource", status=404) if call.resource == DRAIN_REPORTS else None

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"unschedulable": True})
        await wait(bench, 700)
        node = await node_of(bench)
        assert condition(node, names.RETIRE_READY) == "False"
        told = [event.get("count", 1) for event in await all_of(bench, EVENTS) if event["reason"] == "BlocksNodeDrain"]
        assert told == [1]

    play(story, nodes=("n0",), refuse=refuse)


def test_force_drain_opens_the_gate_and_deletes_no_volume() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 5)
        assert len(await all_of(bench, BUDGETS)) == 1
        await change(bench, "n0", annotations={names.FORCE_DRAIN: "ticket 7"})
        await wait(bench, 5)
        assert await all_of(bench, BUDGETS) == []
        assert len(await all_of(bench, VOLUMES)) == 1
        assert "DrainLetGo" in await reasons(bench)

    play(story, args=(*JUDGING, "--drain-gate-image=pause"), nodes=("n0",))


def test_a_dry_run_writes_nothing_anywhere() -> None:
    async def story(bench: Story) -> None:
        mark = len(bench.transcript.lines)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        lines = [line for line in bench.transcript.lines[mark:] if " n0 " in line and "you" not in line]
        assert not [line for line in lines if "create" in line or "patch" in line or "update" in line or "delete" in line], lines

    play(story, args=(*EVACUATING, "--drain-gate-image=pause", "--dry-run"), nodes=("n0",))


def test_a_sidecar_that_may_not_write_does_not_go_on_asking() -> None:
    def refuse(call: Call) -> ApiError | None:
        return Forbidden("no", status=403) if (call.resource, call.verb) in ((NODES, "patch"), (DRAIN_REPORTS, "create")) else None

    async def story(bench: Story) -> None:
        await wait(bench, 600)
        mark = len(bench.transcript.lines)
        await wait(bench, 600)
        assert len([line for line in bench.transcript.lines[mark:] if "Forbidden" in line]) <= 20, "two for each usual look"

    play(story, nodes=("n0",), refuse=refuse)


def test_drain_G1_nothing_of_a_former_node_is_applied_to_a_new_one_of_its_name() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 200)
        former = await node_of(bench)
        assert former["metadata"]["labels"][STATE] == "InProgress"
        await bench.you.delete(NODES, "n0")
        await wait(bench, 20)
        # A machine that copies what its predecessor bore, and is not tainted.
        copied = {"name": "n0", "labels": former["metadata"]["labels"], "annotations": former["metadata"]["annotations"]}
        await bench.you.create(NODES, {"metadata": copied})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await bench.you.patch(NODES, "n0", ready, content_type=MERGE_PATCH, subresource="status")
        await wait(bench, 100)
        node = await node_of(bench)
        assert STATE not in node["metadata"]["labels"] and RECORD not in (node["metadata"].get("annotations") or {})
        report = await bench.you.get(DRAIN_REPORTS, names.drain_report("n0", DRIVER))
        assert [ref["uid"] for ref in report["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]]
        assert report["status"]["nodeUID"] == node["metadata"]["uid"] != former["metadata"]["uid"]
        assert condition(node, names.RETIRE_READY) == "False"

    play(story, args=EVACUATING, nodes=("n0",))


def test_drain_B8_a_node_that_vanishes_ends_the_local_work(caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        await bench.you.delete(NODES, "n0")
        await wait(bench, 10)
        mark = len(bench.transcript.lines)
        await wait(bench, 700)
        asked = [line for line in bench.transcript.lines[mark:] if " n0 " in line and ("nodes" in line or "reports" in line)]
        assert asked == []

    play(story, args=EVACUATING, nodes=("n0",))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_drain_G6_a_sidecar_that_is_told_to_stop_resumes_where_it_was() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        before = await node_of(bench)
        asked_at = bench.clock()
        bench.nodes["n0"].stop()
        assert await bench.until(lambda: bool(bench.nodes["n0"].ends), 30)
        assert bench.clock() - asked_at < 25, "within the pod's grace period"
        await wait(bench, 60)
        after = await node_of(bench)
        assert after["metadata"]["labels"][STATE] == "InProgress"
        assert started(after) == started(before)
        assert (await reasons(bench)).count("EvacuationStarted") == 1

    play(story, args=EVACUATING, nodes=("n0",))


def test_what_was_begun_is_undone_where_nothing_is_judged_any_more() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        assert all([await all_of(bench, resource) for resource in (BUDGETS, DEPLOYMENTS)])
        bench.plan = replace(bench.plan, args=("--node-drain-policy=NoSchedule",))
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        assert not any([await all_of(bench, resource) for resource in (BUDGETS, DEPLOYMENTS)])
        node = await node_of(bench)
        assert STATE not in node["metadata"]["labels"]
        assert not {names.DO_NOT_DISRUPT, names.SCALE_DOWN_DISABLED} & set(node["metadata"]["annotations"])
        assert set(json.loads(node["metadata"]["annotations"][RECORD])) == {"uid", "closedAt"}, "it is closed all the same"

    gated = ("--drain-gate-image=pause", "--drain-autoscaler-annotations")
    play(story, args=(*EVACUATING, *gated), nodes=("n0",))


def test_a_gate_whose_guard_does_not_run_is_not_called_held() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 20)
        gate = (await report_of(bench))["gate"]
        assert (gate["enabled"], gate["held"]) == (True, False) and "not ready" in gate["why"]
        assert gate_by_metrics(bench) == "open"
        uid = (await node_of(bench))["metadata"]["uid"]
        body = {"containers": [{"name": "guard", "image": "none"}], "nodeSelector": {"kubernetes.io/hostname": "n0"}}
        for name, driver in (("other", "other.example.com"), ("guard", DRIVER)):
            meta = {"name": name, "labels": {names.GUARDED_NODE: uid, names.GUARDED_FOR: driver}}
            await bench.you.create(PODS, {"metadata": meta, "spec": body}, namespace="default")
            await bench.until_phase(PODS, name, "Running")
            await wait(bench, 20)
            assert (await report_of(bench))["gate"]["held"] is (driver == DRIVER)
            assert gate_by_metrics(bench) == ("closed" if driver == DRIVER else "open")

    play(story, args=(*JUDGING, "--drain-gate-image=pause"), nodes=("n0",))


def test_a_lost_write_that_takes_back_a_true_is_tried_again_in_ten_seconds() -> None:
    """For long something else has been refused, so the rest waits for minutes."""
    broken: list[bool] = []
    tried: list[None] = []

    def refuse(call: Call) -> ApiError | None:
        if broken and call.resource == NAMESPACES:
            return Unavailable("no answer")
        if broken and (call.verb, call.resource, call.subresource) == ("patch", NODES, "status"):
            tried.append(None)
            return Unavailable("no answer")
        return None

    async def story(bench: Story) -> None:
        await wait(bench, 100)
        assert condition(await node_of(bench), names.RETIRE_READY) == "True"
        broken.append(True)
        await running(bench, "a")
        await wait(bench, 300)
        tried.clear()
        await wait(bench, 300)
        assert 20 <= len(tried) <= 62
        broken.clear()
        await wait(bench, 310)
        assert condition(await node_of(bench), names.RETIRE_READY) == "False"

    play(story, args=("--drain-report",), nodes=("n0",), refuse=refuse)


def test_a_report_that_could_not_be_read_at_the_start_is_not_forgotten() -> None:
    broken: list[bool] = []

    def refuse(call: Call) -> ApiError | None:
        return Unavailable("no answer") if broken and (call.verb, call.resource) == ("get", DRAIN_REPORTS) else None

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"unschedulable": True}, annotations={names.NODE_DRAIN_POLICY: "evacuate"})
        await wait(bench, 100)
        before = await report_of(bench)
        broken.append(True)
        bench.nodes["n0"].kill()
        await wait(bench, 120)
        assert await report_of(bench) == before
        broken.clear()
        await wait(bench, 600)
        after = await report_of(bench)
        assert (after["blockers"], after["verdicts"]) == (before["blockers"], before["verdicts"])
        assert after["observedAt"] != before["observedAt"]
        assert (await times(bench, "BlocksNodeDrain"), await times(bench, "NodeMarksWrong")) == (1, 2), "marks: by each process"

    play(story, nodes=("n0",), refuse=refuse)


def test_an_override_by_the_deadline_stays_one_after_a_restart() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 640)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "Overridden"
        mark = len(bench.transcript.lines)
        bench.nodes["n0"].kill()
        await wait(bench, 120)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "Overridden"
        assert not [line for line in bench.transcript.lines[mark:] if "create poddisruptionbudgets" in line]
        assert await all_of(bench, BUDGETS) == [] and await times(bench, "EvacuationOverridden") == 1

    play(story, args=(*EVACUATING, *GATE, "--evacuation-deadline=10m", "--evacuation-expiry=Override"), nodes=("n0",))


def test_a_node_whose_object_is_gone_takes_no_volumes_until_there_is_one_again() -> None:
    def case(policy: str, taints: list[Json]) -> None:
        async def story(bench: Story) -> None:
            await bench.storage_class("now", "Immediate")
            await change(bench, "n0", {"taints": taints})
            await wait(bench, 10)
            await bench.you.delete(NODES, "n0")
            await wait(bench, 10)
            closed = standing_of(bench).closed
            assert closed is (policy != "Ignore"), "a drop-in changes nothing"
            spec = {"storageClassName": "now", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            await bench.you.create(CLAIMS, {"metadata": {"name": "x"}, "spec": spec}, namespace="default")
            await wait(bench, 100)
            assert phase(bench, "x") == ("Pending" if closed else "Bound")
            await bench.you.create(NODES, {"metadata": {"name": "n0", "labels": {"kubernetes.io/hostname": "n0"}}})
            await wait(bench, 100)
            assert standing_of(bench) == OPEN and phase(bench, "x") == "Bound"

        play(story, args=("--drain-report", f"--node-drain-policy={policy}"), nodes=("n0",))

    for policy, taints in [("Evacuate", [EVACUATE]), ("Evacuate", []), ("Ignore", [EVACUATE])]:
        case(policy, taints)


def test_a_watch_that_lags_has_nothing_begun_or_told_twice() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        bench.network.weather = replace(bench.network.weather, watch=Latency(3.0, 3.0))
        await change(bench, "n0", {"taints": [EVACUATE]})
        for number in range(6):
            await change(bench, "n0", annotations={"other": str(number)})
            await wait(bench, 0.7)
        await wait(bench, 30)
        begun = started(await node_of(bench))
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await bench.you.delete(CLAIMS, "a", namespace="default")
        for number in range(20):
            await change(bench, "n0", annotations={"other": str(number)})
            await wait(bench, 0.7)
        await wait(bench, 60)
        assert started(await node_of(bench)) == begun
        told = await reasons(bench)
        assert (told.count("EvacuationStarted"), told.count("EvacuationSucceeded")) == (1, 1)

    play(story, args=EVACUATING, nodes=("n0",))


def test_a_gate_that_could_not_be_built_is_tried_again_in_ten_seconds() -> None:
    """Until it stands whoever drains the node takes its volumes along."""
    broken = [True]

    def refuse(call: Call) -> ApiError | None:
        return Unavailable("no answer") if broken and (call.resource, call.verb) == (BUDGETS, "create") else None

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 900)
        assert not await all_of(bench, BUDGETS)
        broken.clear()
        await wait(bench, 12)
        assert await all_of(bench, BUDGETS) and await all_of(bench, DEPLOYMENTS)

    play(story, args=(*JUDGING, *GATE), nodes=("n0",), refuse=refuse)


def test_a_look_in_which_nothing_that_is_written_is_answered_comes_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Story) -> None:
        await wait(bench, 20)
        bench.network.weather = replace(bench.network.weather, write=Latency(45.0, 45.0))
        await with_pod(bench, "a")
        await wait(bench, 900)
        assert (await report_of(bench))["verdicts"]["retire"]["status"] == "False"
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    play(story, args=(*JUDGING, *GATE), nodes=("n0",))


def test_a_true_is_taken_back_before_the_gate_is_made() -> None:
    """Where the API server is slow, making the gate takes minutes."""

    async def story(bench: Story) -> None:
        await wait(bench, 100)
        assert condition(await node_of(bench), names.RETIRE_READY) == "True"
        bench.network.weather = replace(bench.network.weather, write=Latency(20.0, 20.0))
        await with_pod(bench, "a")
        while not await all_of(bench, BUDGETS):
            await wait(bench, 1)
        assert condition(await node_of(bench), names.RETIRE_READY) != "True"

    play(story, args=(*JUDGING, *GATE), nodes=("n0",))
