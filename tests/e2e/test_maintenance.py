"""Declared maintenance on a real control plane: nodes are cordoned, drained in step, and put back, by the program as a process on each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar, pod
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names, timestamps
from tests.e2e.test_maintenance_types import PLANNED, RULES, declared
from tests.harness.cluster import BUDGETS, DAEMON_SETS, DEPLOYMENTS, NAMESPACES, NODES, PODS, after_looks
from tests.harness.drains import EVENTS_OF_NODES, Ground, budget, component

OWN_RULES = RULES.replace("/default/", "/{namespace}/")
MAINTAINING = ("--maintenance",)


@pytest.fixture(scope="module")
def types(plane: ControlPlane, drainer: Path) -> Iterator[None]:
    """With the rights of the component, which other tests' sidecars do not have."""
    manifest = component("maintenance")
    plane.apply(manifest)
    until(lambda: all(plane.serves(path) for path in (PLANNED, RULES)), "the API server serves both types")
    yield
    roles = [item for item in yaml.safe_load_all(manifest) if item["kind"] != "CustomResourceDefinition"]
    plane.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(roles))


@pytest.fixture
def mine(ground: Ground, types: None) -> Iterator[Ground]:
    yield ground
    for path in (PLANNED, OWN_RULES):
        ground.request("DELETE", path)


@contextmanager
def nodes(ground: Ground, *named: str) -> Iterator[dict[str, tuple[OurDriver, Sidecar]]]:
    """Each with its driver and its sidecar, which judges it already."""
    with ExitStack() as running:
        found = {}
        for name in named:
            driver = running.enter_context(ground.driver(name))
            ground.node(name, driver)
            found[name] = (driver, running.enter_context(ground.judge(driver, *MAINTAINING)))
        for driver, sidecar in found.values():
            sidecar.until_ready()
            ground.await_verdict(driver, "True")
        yield found


def run(ground: Ground, name: str, node: str, **labels: str) -> None:
    made = pod(name, nodeSelector={"kubernetes.io/hostname": node})
    made["metadata"]["labels"] = {"app": name, **labels}
    ground.create(PODS, made)
    until(lambda: ground.phase(PODS, name) == "Running", f"{name} runs")


def plan(ground: Ground, stage: str, nodes: Sequence[str] = ("n1", "n2"), **more: object) -> None:
    ground.request("POST", PLANNED, declared(PLANNED, {"nodes": list(nodes), "intent": "reboot", "stage": stage, **more}))


def go_to(ground: Ground, stage: str) -> None:
    ground.request("PATCH", f"{PLANNED}/m1", {"spec": {"stage": stage}}, content_type=MERGE_PATCH)


def cordoned(ground: Ground) -> set[str]:
    return {item["metadata"]["name"] for item in ground.items(NODES) if item["spec"].get("unschedulable")}


def record(ground: Ground, node: str, driver: OurDriver) -> Json:
    found: Json = json.loads(ground.marks(node).get(names.of_driver(driver.driver, names.MAINTENANCE_RECORD), "{}"))
    return found


def conditions(ground: Ground, node: str) -> set[str]:
    found = ground.get(NODES, node)["status"].get("conditions", ())
    return {item["type"] for item in found if item["type"] in names.LIFECYCLE_CONDITIONS and item["status"] == "True"}


def is_at_rest(ground: Ground, node: str, driver: OurDriver) -> bool:
    return not record(ground, node, driver) and not conditions(ground, node)


def shown(ground: Ground, field: str) -> str:
    return str(ground.get(PLANNED, "m1").get("status", {}).get(field, ""))


def test_two_nodes_are_cordoned_drained_in_step_and_put_back_as_they_were(mine: Ground) -> None:
    """n2 was cordoned before, and a budget holds the first pod of n1, so n2 waits with its second."""
    ground = mine
    with nodes(ground, "n1", "n2") as running:
        for node in running:
            run(ground, f"first-{node}", node, tier="web")
            run(ground, f"second-{node}", node)
        labels = {"app": "agent"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        agent = {"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        ground.create(DAEMON_SETS, {"apiVersion": "apps/v1", "kind": "DaemonSet", **agent})
        until(lambda: len(ground.names(PODS)) == 6, "an agent is on each node")
        agents = ground.names(PODS) - {f"{which}-{node}" for which in ("first", "second") for node in running}
        ground.cordon("n2")
        ground.create(BUDGETS, budget("web", {"app": "first-n1"}, minAvailable=1))
        until(lambda: ground.get(BUDGETS, "web").get("status", {}).get("expectedPods") == 1, "the budget is counted")

        web = {"podSelector": {"matchLabels": {"tier": "web"}}, "maxPriority": 0}
        plan(ground, "Idle", drainPlan=[web], plannedFor="2026-12-01T22:00:00Z")
        until(lambda: all(conditions(ground, node) == {names.MAINTENANCE_PLANNED} for node in running), "it is announced")
        assert cordoned(ground) == {"n2"}
        go_to(ground, "Cordon")
        until(lambda: cordoned(ground) == {"n1", "n2"}, "both are cordoned")
        until(lambda: all(conditions(ground, node) == {names.MAINTENANCE_IN_PROGRESS} for node in running), "it has begun")
        assert len(ground.names(PODS)) == 6, "nobody is evicted by a cordon"

        go_to(ground, "Drain")
        until(lambda: "first-n2" not in ground.names(PODS), "n2 has done the first entry")
        until(lambda: "waits for node n1" in shown(ground, "message"), "it is shown whom n2 waits for")
        after_looks(running["n2"][1], at="drain")
        assert ground.names(PODS) >= {"first-n1", "second-n1", "second-n2"}, "never one entry ahead of n1, whose budget is kept"
        ground.patch(BUDGETS, "web", {"spec": {"minAvailable": 0}})
        until(lambda: ground.names(PODS) == agents, "all are drained but the agents")
        until(lambda: shown(ground, "progress") == "2/2 drained", "it is shown")
        ground.plane.kubectl("wait", "pm/m1", "--for=condition=Drained", "--timeout=120s")
        assert all(conditions(ground, node) == {names.MAINTENANCE_IN_PROGRESS, names.DRAINED} for node in running)
        until(lambda: set(ground.told(names.MAINTENANCE_DRAINED, EVENTS_OF_NODES)) >= set(running), "it is told")

        go_to(ground, "Complete")
        until(lambda: all(is_at_rest(ground, node, driver) for node, (driver, _) in running.items()), "nothing is noted any more")
        assert cordoned(ground) == {"n2"}, "n1 is open again, and n2 is cordoned as before"
        assert agents == ground.names(PODS)


def test_killed_in_the_drain_it_goes_on_where_it_was_and_no_deadline_begins_anew(mine: Ground) -> None:
    """And the object is deleted at last: the record alone says how the node was."""
    ground = mine
    with nodes(ground, "n1") as running:
        (driver, sidecar) = running["n1"]
        run(ground, "held", "n1")
        ground.create(BUDGETS, budget("held", {"app": "held"}, minAvailable=1))
        until(lambda: ground.get(BUDGETS, "held").get("status", {}).get("expectedPods") == 1, "the budget is counted")
        plan(ground, "Drain", ["n1"], deadline="1s")
        until(lambda: record(ground, "n1", driver).get("of"), "it is noted since when it drains")
        sidecar.kill()
        before = record(ground, "n1", driver)
        (noted,) = before["of"].values()
        assert before["prior"] is False and noted["deadlineAt"] > noted["startedAt"]
        sidecar.start()
        sidecar.until_ready()
        until(lambda: "n1" in ground.told(names.MAINTENANCE_LATE, EVENTS_OF_NODES), "the deadline is over, whatever the budget says")
        until(lambda: ground.report("n1", driver).get("maintenance", [{}])[0].get("late"), "the report says so")
        until(lambda: sidecar.metric("csi_node_sidecar_maintenance_late") == 1, "so does the metric of the alert")
        assert (
            sidecar.metric("csi_node_sidecar_maintenance_pods_left") == sidecar.metric("csi_node_sidecar_maintenances", stage="Drain") == 1
        )
        (after,) = record(ground, "n1", driver)["of"].values()
        assert (after["startedAt"], after["deadlineAt"]) == (noted["startedAt"], noted["deadlineAt"])
        assert "held" in ground.names(PODS)
        ground.delete(BUDGETS, "held")
        until(lambda: "held" not in ground.names(PODS), "it goes on")
        until(lambda: names.DRAINED in conditions(ground, "n1"), "it is drained")
        sidecar.kill()
        ground.delete(PLANNED, "m1")
        sidecar.start()
        until(lambda: is_at_rest(ground, "n1", driver) and not cordoned(ground), "it is put back")


def test_killed_in_cordon_and_in_complete_it_goes_on_where_it_was(mine: Ground) -> None:
    """Whatever of Complete was written by then: n2, which was cordoned before, stays so, and nothing else is left."""
    ground = mine
    with nodes(ground, "n1", "n2") as running:
        run(ground, "stays", "n1")
        ground.cordon("n2")
        for pause in (0.05, 0.3, 0.6):
            plan(ground, "Cordon")
            until(lambda: all("prior" in record(ground, node, driver) for node, (driver, _) in running.items()), "both are noted")
            for _, sidecar in running.values():
                sidecar.kill()
                sidecar.start()
            until(lambda: all(conditions(ground, node) == {names.MAINTENANCE_IN_PROGRESS} for node in running), "it goes on")
            priors = {node: record(ground, node, driver)["prior"] for node, (driver, _) in running.items()}
            assert priors == {"n1": False, "n2": True} and cordoned(ground) == {"n1", "n2"}
            go_to(ground, "Complete")
            time.sleep(pause)
            for _, sidecar in running.values():
                sidecar.kill()
                sidecar.start()
            until(lambda: all(is_at_rest(ground, node, driver) for node, (driver, _) in running.items()), "nothing is noted any more")
            assert cordoned(ground) == {"n2"}
            ground.request("DELETE", f"{PLANNED}/m1")
        assert ground.names(PODS) == {"stays"}


def test_a_deadline_is_over_while_the_api_server_is_away_and_overrides_what_is_waited_for_once_it_is_back(mine: Ground) -> None:
    ground = mine
    with nodes(ground, "n1") as running:
        (driver, _) = running["n1"]
        run(ground, "ends", "n1")
        waits = {"podSelector": {"matchLabels": {"app": "ends"}}, "behavior": "WaitCompleted"}
        ground.create(OWN_RULES, declared(OWN_RULES, waits, "waits"))
        plan(ground, "Drain", ["n1"], deadline="15s", onDeadline="Override")
        until(lambda: "it has to end by itself" in str(ground.report("n1", driver).get("maintenance")), "it waits for the pod")
        (noted,) = record(ground, "n1", driver)["of"].values()
        ground.plane.kill_apiserver()
        try:
            until(lambda: time.time() > (timestamps.to_seconds(noted["deadlineAt"]) or 0.0) + 2.0, "the deadline is over")
        finally:
            ground.plane.start_apiserver()
        until(lambda: "deadline" in record(ground, "n1", driver).get("forced", ""), "it is overridden")
        (after,) = record(ground, "n1", driver)["of"].values()
        assert (after["startedAt"], after["deadlineAt"]) == (noted["startedAt"], noted["deadlineAt"])
        until(lambda: names.DRAINED in conditions(ground, "n1"), "nobody is waited for any more")
        until(lambda: "n1" in ground.told(names.MAINTENANCE_LATE, EVENTS_OF_NODES), "that is told, which nobody would have heard before")
        assert ground.names(PODS) == {"ends"}, "what its team lets end by itself is not evicted"


def test_a_member_without_a_sidecar_is_named_and_the_others_go_on_when_somebody_says_so(mine: Ground) -> None:
    ground = mine
    with nodes(ground, "n1"):
        ground.node("n2")
        for name, labels in {"first": {"tier": "web"}, "second": {}}.items():
            run(ground, name, "n1", **labels)
        run(ground, "theirs", "n2")
        plan(ground, "Drain", drainPlan=[{"podSelector": {"matchLabels": {"tier": "web"}}, "maxPriority": 0}])
        until(lambda: "first" not in ground.names(PODS), "n1 has done the first entry")
        until(lambda: "n2: has no sidecar that carries it out" in shown(ground, "message"), "n2 is named")
        assert ground.names(PODS) == {"second", "theirs"} and cordoned(ground) == {"n1"}
        ground.change("n2", {"metadata": {"annotations": {names.IGNORED_BY_MAINTENANCE: "it is away"}}})
        until(lambda: names.DRAINED in conditions(ground, "n1"), "n1 goes on")
        assert ground.names(PODS) == {"theirs"} and cordoned(ground) == {"n1"}


def test_of_two_maintenances_the_last_one_puts_a_node_back_and_a_person_s_drain_in_the_middle_is_one_more(mine: Ground) -> None:
    ground = mine
    with nodes(ground, "n1") as running:
        (driver, _) = running["n1"]
        labels = {"app": "web"}
        one = {"containers": [{"name": "main", "image": "none"}], "nodeSelector": {"kubernetes.io/hostname": "n1"}}
        template = {"metadata": {"labels": labels}, "spec": {**one, "terminationGracePeriodSeconds": 0}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        ground.create(DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        until(lambda: [*ground.ready().values()] == ["n1"] * 2, "both replicas run")
        ground.create(BUDGETS, budget("web", labels, minAvailable=2))
        until(lambda: ground.get(BUDGETS, "web").get("status", {}).get("expectedPods") == 2, "the budget is counted")
        ground.request("POST", PLANNED, declared(PLANNED, {"nodes": ["n1"], "intent": "retire"}, "m2"))
        plan(ground, "Drain", ["n1"])
        ground.request("PATCH", f"{PLANNED}/m2", {"spec": {"stage": "Cordon"}}, content_type=MERGE_PATCH)
        until(lambda: record(ground, "n1", driver).get("of"), "it drains")
        with ground.drain("n1") as person:
            until(person.refusals, "the person is refused by the budget like us")
            assert [*ground.ready().values()] == ["n1"] * 2
            ground.delete(BUDGETS, "web")
            assert person.wait() == 0
        until(lambda: names.DRAINED in conditions(ground, "n1"), "it is drained, whoever has evicted whom")
        go_to(ground, "Complete")
        until(lambda: "of" not in record(ground, "n1", driver), "it drains no more")
        assert cordoned(ground) == {"n1"} and record(ground, "n1", driver)["prior"] is False, "the other one wants it yet"
        ground.request("DELETE", f"{PLANNED}/m2")
        until(lambda: is_at_rest(ground, "n1", driver) and not cordoned(ground), "it is put back")


def test_rules_of_two_teams_count_in_their_own_namespaces(mine: Ground) -> None:
    ground = mine
    other = f"{ground.namespace}-other"
    ground.request("POST", NAMESPACES, {"metadata": {"name": other}})
    try:
        with nodes(ground, "n1"):
            for name in ("stays", "ends", "goes"):
                run(ground, name, "n1")
            rules = {"a-skip": ({"app": "stays"}, "Skip"), "b-wait": ({"app": "ends"}, "WaitCompleted")}
            for name, (labels, behavior) in rules.items():
                rule = declared(OWN_RULES, {"podSelector": {"matchLabels": labels}, "behavior": behavior}, name)
                ground.create(OWN_RULES, rule)
            ground.request("POST", RULES.replace("/default/", f"/{other}/"), declared(RULES, {"podSelector": {}, "behavior": "Skip"}))
            plan(ground, "Drain", ["n1"])
            until(lambda: ground.names(PODS) == {"stays", "ends"}, "what no rule of its own namespace keeps is evicted")
            until(lambda: "it has to end by itself" in shown(ground, "message"), "it is shown")
            assert names.DRAINED not in conditions(ground, "n1")
            ground.patch(PODS, "ends/status", {"status": {"phase": "Succeeded"}})
            until(lambda: names.DRAINED in conditions(ground, "n1"), "what has ended is not waited for, nor is what is skipped")
            assert ground.names(PODS) >= {"stays"}
    finally:
        ground.request("DELETE", f"{NAMESPACES}/{other}")
