"""Nodes are drained with real kubelets: predicted, held by the gate, let go, and left without a trace."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.patience import deadline, patient
from sidecar.model import names
from tests.cluster.draining import (
    AFTER_USE,
    CLOSED,
    MAY_BE,
    STARTED,
    STATE,
    Drained,
    Writers,
    daemon_set,
    late_pod,
    seconds_until,
    unchanged,
    why_pending,
)
from tests.cluster.scenes import DRIVER, EXAMPLE, NAMESPACE, Installation, Json, lines_of

# kubectl asks again every five seconds; a look of the sidecar, the end of the guard and its own poll come on top.
LET_GO_WITHIN = 5.0 + 5.0
# The worst case of a lease of one second, which `gate/pacing` reckons up, and as much again as a pause for requests that take their time.
OPENED_WITHIN = 72 + 151 + 5 + 65 + 37
AFFINITY = re.compile("volume node affinity conflict|didn't match PersistentVolume's node affinity")


@pytest.fixture(scope="module")
def writers(drained: Drained) -> Iterator[Writers]:
    found = Writers(drained.installation)
    found.start(2)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _let_be(drained: Drained) -> Iterator[None]:
    yield
    drained.let_be()
    drained.await_open()


def test_d2_a_pod_is_predicted_as_it_then_really_ends(drained: Drained, writers: Writers, tmp_path: Path) -> None:
    """Asked before anybody cordons; then the node is drained for a reboot, and comes back."""
    before = writers.pods()["writer-0"]
    node = before["spec"]["nodeName"]
    said = ask(drained, node, "--intent", "reboot")
    (ends,) = [item for item in said["pods"] if item["name"] == "writer-0"]
    assert (ends["reboot"], ends["retire"]) == ("ReturnsAfterUncordon", "StrandedUntilUncordon")
    assert (said["verdicts"]["drain"]["status"], said["verdicts"]["retire"]["status"]) == ("True", "False")
    table = drained.sidecar_command("explain", "node", node, "--intent", "reboot")
    assert table.returncode == 0
    assert "writer-0" in table.stdout and "ReturnsAfterUncordon" in table.stdout

    drained.kubectl("annotate", "node", node, f"{names.DRAIN_INTENT}=reboot")
    drained.kubectl("cordon", node)  # before that it is no reboot, and the gate stands
    until(lambda: not drained.guards(node), "the gate is open for a reboot", seconds=MAY_BE)
    written = lines_of(drained.installation, "writer-0")
    with drained.drain(node, seconds=60, log=tmp_path / "drain.log") as drain:
        assert drain.await_end(70) == 0, drain.said()
        assert not drain.refusals()
    assert AFFINITY.search(why_pending(writers.await_pending("writer-0", other_than=before["metadata"]["uid"])))
    # The annotation says what the cordon is for: that is an evacuation, which blocks nothing and so has succeeded.
    until(lambda: drained.label(node, STATE) == "Success", "success is noted", seconds=MAY_BE)
    drained.kubectl("uncordon", node)
    writers.await_rollout()
    assert writers.pods()["writer-0"]["spec"]["nodeName"] == node
    after = lines_of(drained.installation, "writer-0")
    assert written and list(after[: len(written)]) == list(written)


def ask(drained: Drained, node: str, *words: str) -> Json:
    """What `explain node` says as JSON, having seen that the question writes nothing."""

    def versions() -> list[tuple[str, str]]:
        found = [drained.node(node), *drained.installation.items("persistentvolumes")]
        found += drained.installation.items("persistentvolumeclaims", "--all-namespaces")
        return [(item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for item in found]

    done = unchanged(versions, lambda: drained.sidecar_command("explain", "node", node, *words, "-o", "json"))
    assert (done.returncode, done.stderr) == (0, "")
    (said,) = json.loads(done.stdout)
    return dict(said)


def test_d1_claims_without_pods_keep_a_node_from_retiring_and_not_from_rebooting(drained: Drained, writers: Writers) -> None:
    node = writers.pods()["writer-0"]["spec"]["nodeName"]
    writers.scale(0)
    until(lambda: drained.condition(node) == ("False", "LastCopy"), "its claims are the last copies", seconds=AFTER_USE)
    drained.kubectl("cordon", node)
    waits = drained.installation.kubectl_waits
    waits("wait", f"--for=condition={names.condition(DRIVER, names.DRAIN_READY)}", f"node/{node}", seconds=30)
    waits("wait", f"--for=condition={names.condition(DRIVER, names.RETIRE_READY)}=False", f"node/{node}", seconds=10)
    report = f"nodedrainreport/{names.drain_report(node, DRIVER)}"
    waits("wait", "--for=condition=DrainReady", report, seconds=10)
    waits("wait", "--for=condition=RetireReady=False", report, seconds=10)

    told = {(item["reason"], item["namespace"], item["name"]) for item in drained.report(node)["blockers"]}
    assert ("LastCopy", EXAMPLE, "data-writer-0") in told and {reason for reason, _, _ in told} == {"LastCopy"}
    complaint = ("--namespace", EXAMPLE, "--field-selector=reason=BlocksNodeDrain,involvedObject.name=data-writer-0")
    until(lambda: drained.installation.items("events", *complaint), "the claim's owner is told", seconds=MAY_BE)
    (event,) = drained.installation.items("events", *complaint)
    assert "LastCopy" in event["message"] and event.get("count", 1) == 1


def test_e1_e2_a_real_drain_is_held_by_the_gate_and_let_go(drained: Drained, writers: Writers, tmp_path: Path) -> None:
    """Without --force; the sidecar of the node stays, and comes again, under its own taint and the cordon."""
    writers.scale(2)
    before = writers.pods()["writer-0"]
    node = before["spec"]["nodeName"]
    guard = drained.await_gate(node)
    drained.taint(node, "retire")
    until(lambda: drained.label(node, STATE) == "InProgress", "the evacuation is under way", seconds=MAY_BE)
    started = drained.note(node, STARTED)

    with drained.drain(node, seconds=150, log=tmp_path / "drain.log") as drain:
        until(drain.refusals, "the guard is not evicted", seconds=MAY_BE)
        writers.await_pending("writer-0", other_than=before["metadata"]["uid"])
        sidecar = drained.renew_sidecar(node)
        assert (drained.note(node, STARTED), drained.label(node, STATE)) == (started, "InProgress")
        assert drain.runs()
        assert {f'pods/"{guard}" -n "{NAMESPACE}"' in line for line in drain.refusals()} == {True}, drain.said()

        # The scheduler may have put both writers on one node.
        there = {name: claim for name, claim in writers.claims().items() if claim["metadata"]["annotations"][names.SELECTED_NODE] == node}
        volumes = {claim["spec"]["volumeName"] for claim in there.values()}
        drained.kubectl("delete", "persistentvolumeclaim", *there, f"--namespace={EXAMPLE}", "--wait=false")
        left = drained.installation.volumes
        until(lambda: not volumes & {item["metadata"]["name"] for item in left()}, "their volumes are gone", seconds=MAY_BE)
        opened = seconds_until(lambda: not drained.budgets(node), "the gate is open", seconds=MAY_BE)
        let_go = time.monotonic()
        assert drain.await_end(60) == 0, drain.said()
        took = opened + time.monotonic() - let_go
    print(f"the volume gone, the gate was open after {opened:.1f} s and the drain had ended after {took:.1f} s")
    assert took < patient(LET_GO_WITHIN)
    assert "error: " not in drain.said()

    until(lambda: drained.label(node, STATE) == "Success", "success is noted", seconds=MAY_BE)
    until(lambda: drained.condition(node)[0] == "True", "the node may be retired", seconds=MAY_BE)
    stayed = drained.installation.pods()[node]
    assert stayed["metadata"]["uid"] == sidecar["metadata"]["uid"]
    assert [item["restartCount"] for item in stayed["status"]["containerStatuses"]] == [0, 0]
    writers.await_rollout()
    assert writers.pods()["writer-0"]["spec"]["nodeName"] != node


def test_d9_a_daemon_set_s_pod_gets_its_ephemeral_volume_on_a_cordoned_node(drained: Drained) -> None:
    node = drained.nodes[0]
    drained.kubectl("cordon", node)
    until(lambda: drained.note(node, CLOSED), "the node is closed", seconds=MAY_BE)
    drained.installation.apply(daemon_set("agent"))
    try:
        await_daemon_set(drained, "agent")
        pods = drained.installation.items("pods", "--namespace=default", "--selector=app=agent")
        (here,) = [item["metadata"]["name"] for item in pods if item["spec"]["nodeName"] == node]
        notes = drained.installation.claims(here)[f"{here}-data"]["metadata"]["annotations"]
        assert notes[names.SELECTED_NODE] == node
        assert names.HANDED_BACK not in notes
        told = drained.installation.items("events", "--namespace=default", f"--field-selector=involvedObject.name={here}-data")
        assert [item["message"] for item in told if f"pod default/{here} tolerates the cordon" in item["message"]]
        # While the volume was being made it was not, and what is written of it comes a moment after the pod runs.
        until(lambda: drained.condition(node, names.DRAIN_READY)[0] == "True", "the node may be drained", seconds=MAY_BE)
    finally:
        drained.kubectl("delete", "daemonset", "agent", "--namespace=default", "--cascade=foreground", seconds=60)


def await_daemon_set(drained: Drained, name: str) -> None:
    """Its pods run on all nodes; if not, the scheduler's own words are the failure."""

    def waiting() -> list[str]:
        pods = drained.installation.items("pods", "--namespace=default", f"--selector=app={name}")
        running = [item for item in pods if item["status"].get("phase") == "Running"]
        return (
            [] if len(running) == len(drained.nodes) else [why_pending(item) or str(item["status"].get("phase")) for item in pods] or ["-"]
        )

    end = deadline(40)
    while why := waiting():
        assert time.monotonic() < end, why
        time.sleep(0.5)


def test_d9_claims_whose_node_was_chosen_before_are_handed_back_once(drained: Drained) -> None:
    """The sidecar hears of both claims when the node has been closed already. One pod fits elsewhere, the other nowhere else."""
    installation, (node, elsewhere) = drained.installation, drained.nodes
    names_of_both = ("back-free", "back-stuck")
    machine, process = installation.cluster.node(node), installation.process_of(node)
    restarts = installation.restarts(node)
    machine.run("kill", "-STOP", str(process))
    try:
        installation.apply(*late_pod("back-free", preferred=node), *late_pod("back-stuck", required=node))
        until(lambda: [chosen(installation, name) for name in names_of_both] == [node] * 2, "both are put on the node", seconds=MAY_BE)
        drained.taint(node)
        drained.kubectl("cordon", node)
    finally:
        machine.run("kill", "-KILL", str(process))
    until(lambda: installation.restarts(node) == restarts + 1, "the sidecar is started again", seconds=60)

    until(lambda: claim_of(installation, "back-free")["status"].get("phase") == "Bound", "the one is bound", seconds=60)
    assert chosen(installation, "back-free") == elsewhere
    until(lambda: not chosen(installation, "back-stuck"), "the other is handed back", seconds=MAY_BE)
    for name in names_of_both:
        noted = claim_of(installation, name)["metadata"]["annotations"][names.HANDED_BACK]
        assert noted.startswith(f"{node}@") and "," not in noted
    resting = claim_of(installation, "back-stuck")["metadata"]["resourceVersion"]
    time.sleep(12)
    assert claim_of(installation, "back-stuck")["metadata"]["resourceVersion"] == resting
    assert installation.get("pod", "back-stuck", "--namespace=default")["status"]["phase"] == "Pending"

    drained.let_be()
    ready = ("wait", "--for=condition=Ready", "--namespace=default")
    installation.kubectl_waits(*ready, *(f"pod/{name}" for name in names_of_both), seconds=60)
    assert chosen(installation, "back-stuck") == node
    drained.kubectl("delete", "pod", *names_of_both, "--namespace=default", seconds=60)
    installation.delete_claims("back-")


def claim_of(installation: Installation, name: str) -> Json:
    return installation.claims(name)[name]


def chosen(installation: Installation, name: str) -> str:
    return str((claim_of(installation, name)["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, ""))


def test_e3_the_gate_of_a_dead_sidecar_is_opened_by_a_neighbour_on_proof(drained: Drained, writers: Writers) -> None:
    """By the right of its role and past the policies. Its lease is shortened by hand and its verdicts are made older, or this would take a
    quarter of an hour more.

    Before anybody drains the node the gate stays shut, whatever a verdict says.
    """
    node = writers.pods()["writer-1"]["spec"]["nodeName"]
    uid = drained.node(node)["metadata"]["uid"]
    writers.scale(0)
    drained.await_gate(node)
    assert drained.lease(node)["spec"]["holderIdentity"] == f"{uid}/{DRIVER}"
    held = [name for name, claim in writers.claims().items() if claim["metadata"]["annotations"][names.SELECTED_NODE] == node]
    where = f"--namespace={EXAMPLE}"
    # Of a volume that its last report still counts and nobody else sees, a neighbour could not know that it is gone.
    until(lambda: sum(drained.report(node)["counts"]["classes"].values()) == len(held), "its report counts what is there", seconds=MAY_BE)
    with drained.without_sidecar(node):
        drained.kubectl("annotate", "persistentvolumeclaim", *held, where, f"{names.DRAIN_POLICY}=Ignore")
        name, short = drained.lease(node)["metadata"]["name"], {"spec": {"leaseDurationSeconds": 1}}
        drained.kubectl("patch", "lease", name, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={json.dumps(short)}")
        verdicts = [item for item in drained.node(node)["status"]["conditions"] if item["type"].startswith(f"{DRIVER}/")]
        older = {"status": {"conditions": [{**item, "lastHeartbeatTime": "2026-01-01T00:00:00Z"} for item in verdicts]}}
        drained.kubectl("patch", "node", node, "--subresource=status", "--type=strategic", f"--patch={json.dumps(older)}")
        assert len(verdicts) == 2 and drained.budgets(node)
        drained.kubectl("cordon", node)
        opens = "a neighbour opens the gate"
        took = seconds_until(lambda: not (drained.budgets(node) or drained.lease(node)), opens, seconds=OPENED_WITHIN)
        found = drained.node(node)["status"]["conditions"]
        said = {(item["status"], item["reason"]) for item in found if item["type"].startswith(f"{DRIVER}/")}
        assert said == {("Unknown", "AgentUnavailable")}, "the policy lets it through"
        until(lambda: [event for event in let_go(drained, node) if "no sign of life" in event["message"]], "it is told", seconds=MAY_BE)
        until(lambda: not drained.guards(node), "the guard is gone", seconds=MAY_BE)
        assert len(drained.installation.volumes()) == 2, "no volume is touched"
    print(f"the neighbour had opened the gate after {took:.0f} s")
    drained.kubectl("annotate", "persistentvolumeclaim", *held, where, f"{names.DRAIN_POLICY}-")
    drained.kubectl("uncordon", node)
    drained.await_gate(node)
    writers.scale(2)


def let_go(drained: Drained, node: str) -> list[Json]:
    """The events that say that its gate was opened."""
    return drained.installation.items("events", "--all-namespaces", f"--field-selector=reason=DrainLetGo,involvedObject.name={node}")


def test_g7_an_uninstall_leaves_nothing_of_ours(drained: Drained, writers: Writers) -> None:
    node = writers.pods()["writer-1"]["spec"]["nodeName"]
    writers.scale(0)
    drained.await_gate(node)
    drained.taint(node)
    until(lambda: drained.label(node, STATE) == "InProgress", "the evacuation is under way", seconds=MAY_BE)
    kinds = {trace.partition(":")[0] for trace in drained.traces()}
    assert kinds == {*drained.nodes, "poddisruptionbudgets", "deployments", "leases", "report"}
    drained.remove_daemon_set()
    assert drained.uninstall()
    assert drained.traces() == []
    assert "There is nothing of" in drained.uninstall()
    assert [item["key"] for item in drained.node(node)["spec"]["taints"]] == [names.EVACUATE_TAINT]
    until(lambda: not drained.guards(node), "the guard is gone", seconds=MAY_BE)
    drained.install()
