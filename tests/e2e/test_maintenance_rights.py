"""deploy/components/maintenance on a real API server: what a sidecar's token may write with it, and what planners and teams may.

That without it no sidecar cordons its node is in `tests/e2e/test_drain_rights.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar
from sidecar.drain.maintenance.executor_io import conditions_patch
from sidecar.drain.maintenance.objects import Maintenance
from sidecar.drain.maintenance.status_io import summary
from sidecar.drain.maintenance.step import Progress, Record
from sidecar.drain.report import status_patch
from sidecar.eviction.attempt_io import body
from sidecar.eviction.rules import May
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model import names
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE
from tests.e2e.test_maintenance_types import BY_NAME, PLANNED, RULES, TYPES, declared
from tests.e2e.test_rights_at_work import denied
from tests.harness.drains import JUDGING, SWIFT, accounts
from tests.harness.persons import ACCOUNT, Person
from tests.harness.policies import Abuse, Request, Secured, allowed, built, create, delete, in_force, patch, secured, type_checked

NODE, PODS = "/api/v1/nodes/n1", "/api/v1/namespaces/default/pods"
KEY = names.of_driver(DRIVER, names.MAINTENANCE_RECORD)
NEITHER = "neither cordons nor taints"
ROLES = (DEPLOY / "components" / "maintenance" / "roles.yaml").read_text()


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    plane.apply(TYPES)
    plane.apply(ROLES)
    until(lambda: all(plane.serves(path) for path in (PLANNED, RULES)), "the API server serves both types")
    with secured(plane, built(tmp_path_factory.mktemp("overlay"), "drain", "maintenance")) as made:
        made.make(PLANNED, declared(PLANNED, BY_NAME))
        in_force(patch(f"{PLANNED}/m1/status", {"status": {"nodes": 1}}), made.nobody, "bound to no pod")
        in_force(cordon(), made.nobody, "bound to no pod")
        yield made


def cordon(on: bool = True, note: str | None = None) -> Request:
    meta = {} if note is None else {"metadata": {"annotations": {KEY: note or None}}}
    return patch(NODE, {**meta, "spec": {"unschedulable": on or None}})


def noted(cluster: Secured, prior: bool | None) -> str:
    """What the program would write there."""
    uid = cluster.plane.request("GET", NODE)["metadata"]["uid"]
    return str(Record(prior=prior, of={"u": Progress("m1")}).as_text(uid))


@pytest.fixture
def cordoned(cluster: Secured, request: pytest.FixtureRequest) -> Iterator[None]:
    """By the administrator, with what our sidecar has noted before, of a node that had or had not been cordoned."""
    note = noted(cluster, request.param)
    cluster.plane.request("PATCH", NODE, cordon(note=note).content, content_type=MERGE_PATCH)
    yield
    cluster.plane.request("PATCH", NODE, cordon(on=False, note="").content, content_type=MERGE_PATCH)


# --- the own node -----------------------------------------------------------------------------------------------------


def test_it_cordons_its_own_node_in_one_write_with_its_record(cluster: Secured) -> None:
    whole = cordon(note=noted(cluster, False))
    allowed(whole, cluster.n1)
    code, said, _ = whole.by(cluster.n2)
    assert code == 422 and "may not change node n1" in said
    Abuse(cordon(), NEITHER).check(cluster, cluster.n1)


@pytest.mark.parametrize("cordoned", [False], indirect=True, ids=["it was open"])
def test_it_puts_back_what_it_has_cordoned(cluster: Secured, cordoned: None) -> None:
    allowed(cordon(on=False, note=""), cluster.n1)
    code, said, _ = cordon(on=False, note="").by(cluster.n2)
    assert code == 422 and "may not change node n1" in said


@pytest.mark.parametrize("cordoned", [True, None], indirect=True, ids=["it was cordoned", "its cordon is not ours"])
def test_it_never_uncordons_what_it_has_not_cordoned(cluster: Secured, cordoned: None) -> None:
    Abuse(cordon(on=False, note=""), NEITHER).check(cluster, cluster.n1)
    Abuse(cordon(on=False, note=noted(cluster, False)), NEITHER).check(cluster, cluster.n1)


MORE = [{"taints": [{"key": "a", "effect": "NoSchedule"}]}, {"providerID": "x"}, {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}]


@pytest.mark.parametrize("spec", MORE, ids=str)
def test_nothing_else_of_the_spec_changes_with_the_cordon(cluster: Secured, spec: Json) -> None:
    change = {"metadata": {"annotations": {KEY: noted(cluster, False)}}, "spec": {"unschedulable": True, **spec}}
    Abuse(patch(NODE, change), NEITHER).check(cluster, cluster.n1)


@pytest.mark.parametrize("key", [names.IGNORED_BY_MAINTENANCE, names.of_driver("other.example", names.MAINTENANCE_RECORD)])
def test_other_words_about_maintenances_are_not_its_own(cluster: Secured, key: str) -> None:
    Abuse(patch(NODE, {"metadata": {"annotations": {key: "x"}}}), "its own annotations").check(cluster, cluster.n1)


def conditions(cluster: Secured, *, reason: str = "") -> Request:
    stored = cluster.plane.request("GET", NODE)
    change = conditions_patch(stored, dict.fromkeys(names.LIFECYCLE_CONDITIONS, "PlannedMaintenance m1: reboot"), now=1.7e9)
    for item in change:
        item |= {"reason": reason} if reason else {}
    return patch(f"{NODE}/status", {"status": {"conditions": change}}, content_type=STRATEGIC_MERGE_PATCH)


def test_it_writes_the_conditions_of_its_own_node_and_takes_them_off(cluster: Secured) -> None:
    said = conditions(cluster)
    assert len(said.content["status"]["conditions"]) == 4
    allowed(said, cluster.n1)
    code, told, _ = said.by(cluster.n2)
    assert code == 422 and "may not change node n1" in told
    cluster.plane.request("PATCH", said.path, said.content, content_type=STRATEGIC_MERGE_PATCH)
    gone = conditions_patch(cluster.plane.request("GET", NODE), {}, now=1.7e9)
    assert [item["$patch"] for item in gone] == ["delete"] * 4
    off = patch(f"{NODE}/status", {"status": {"conditions": gone}}, content_type=STRATEGIC_MERGE_PATCH)
    allowed(off, cluster.n1)
    cluster.plane.request("PATCH", off.path, off.content, content_type=STRATEGIC_MERGE_PATCH)


def test_a_condition_of_somebody_else_stays(cluster: Secured) -> None:
    Abuse(conditions(cluster, reason="KubeletDrains"), "its own of a maintenance").check(cluster, cluster.n1)


# --- what is declared -------------------------------------------------------------------------------------------------


def test_it_tells_how_far_a_maintenance_is_and_changes_nothing_else_of_it(cluster: Secured) -> None:
    stored = cluster.plane.request("GET", f"{PLANNED}/m1")
    one = Maintenance.of(stored)
    assert one is not None
    told = Request("PATCH", f"{PLANNED}/m1/status", status_patch(summary(one, [], {}, now=1.7e9), version=one.version), JSON_PATCH)
    allowed(told, cluster.n1)
    spec = patch(f"{PLANNED}/m1/status", {"spec": {"stage": "Drain"}})
    assert spec.by(cluster.n1)[0] == 200
    code, answer = cluster.n1.ask("PATCH", f"{PLANNED}/m1/status?dryRun=All", spec.content, content_type=MERGE_PATCH)
    assert code == 200 and answer["spec"] == stored["spec"], "the status alone is written there"


@pytest.mark.parametrize(
    "sent",
    [
        patch(f"{PLANNED}/m1", {"spec": {"stage": "Drain"}}),
        delete(f"{PLANNED}/m1"),
        create(PLANNED, declared(PLANNED, BY_NAME, "m2")),
        create(RULES, declared(RULES, {"podSelector": {}})),
    ],
    ids=["a stage", "its end", "another one", "a rule"],
)
def test_it_declares_nothing_whoever_gives_it_the_right(cluster: Secured, sent: Request) -> None:
    assert sent.by(cluster.n1)[0] == 403
    rules = [{"apiGroups": [names.GROUP], "resources": ["plannedmaintenances", "drainrules"], "verbs": ["*"]}]
    more = {"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "more-of-ours"}, "rules": rules}
    subject = {"kind": "Group", "name": "system:serviceaccounts", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "more-of-ours"}
    binding = {**more, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}
    del binding["rules"]
    cluster.plane.apply(f"{json.dumps(more)}\n---\n{json.dumps(binding)}")
    try:
        until(lambda: sent.by(cluster.n1)[0] == 422, "the right is in force, and the policy refuses it")
        Abuse(sent, "for people to declare").check(cluster, cluster.n1)
    finally:
        cluster.plane.kubectl("delete", "clusterrole,clusterrolebinding", "more-of-ours")
        until(lambda: sent.by(cluster.n1)[0] == 403, "the right is taken back")


def test_the_server_finds_nothing_to_say_about_the_policies(cluster: Secured) -> None:
    assert not any(type_checked(cluster.plane).values())


# --- evictions --------------------------------------------------------------------------------------------------------


def test_it_evicts_the_very_pod_that_it_has_judged(cluster: Secured) -> None:
    pod = {"metadata": {"name": "leaves"}, "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}}
    sent = body(May("default", "leaves", cluster.plane.request("POST", PODS, pod)["metadata"]["uid"]))
    allowed(create(f"{PODS}/leaves/eviction", sent), cluster.n1)
    sent["deleteOptions"].pop("preconditions")
    Abuse(create(f"{PODS}/leaves/eviction", sent), "the one that it has judged").check(cluster, cluster.n1)
    cluster.plane.request("DELETE", f"{PODS}/leaves?gracePeriodSeconds=0")


# --- the program ------------------------------------------------------------------------------------------------------


def test_all_that_the_program_writes_passes(cluster: Secured, tmp_path: Path) -> None:
    """As a process, with a token as the kubelet hands it out; its pod and those of the other tests stay by a rule."""
    plane = cluster.plane
    rules = f"/apis/{names.REPORT_VERSION}/namespaces/{NAMESPACE}/drainrules"
    cluster.make(rules, declared(RULES, {"podSelector": {}, "behavior": "Skip"}))
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0}
    plane.request("POST", PODS, {"metadata": {"name": "goes"}, "spec": spec})
    before = denied(plane)
    assert before, "it counts none, not even those by which the fixture saw that the policies are in force"
    driver = OurDriver(tmp_path, node="n1", name=DRIVER)
    sidecar = Sidecar(
        tmp_path,
        node="n1",
        address=driver.socket,
        kubeconfig=cluster.kubeconfig("n1", ACCOUNT),
        args=[*JUDGING, "--maintenance"],
        environ={"NAMESPACE": NAMESPACE, "POD_NAME": "none"},
        speed=SWIFT,
    )

    def node() -> Json:
        return plane.request("GET", NODE)

    with driver, sidecar:
        plane.request("POST", PLANNED, declared(PLANNED, {"nodes": ["n1"], "intent": "reboot", "stage": "Drain"}, "m3"))
        until(lambda: node()["spec"].get("unschedulable") and KEY in node()["metadata"]["annotations"], "it is cordoned and noted")
        until(lambda: "goes" not in [item["metadata"]["name"] for item in plane.request("GET", PODS)["items"]], "the pod is evicted")
        until(lambda: plane.request("GET", f"{PLANNED}/m3").get("status", {}).get("drainedNodes") == 1, "that is told")
        plane.request("DELETE", f"{PLANNED}/m3")
        until(lambda: not node()["spec"].get("unschedulable") and KEY not in node()["metadata"]["annotations"], "it is put back")
    assert denied(plane) == before


# --- people -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def people(cluster: Secured) -> dict[str, Person]:
    """Whoever plans maintenances, and whoever ships rules in one namespace."""
    plane = cluster.plane
    plane.apply(accounts("default", "planner", "team"))
    role = "csi-node-sidecar-maintenance-planner"
    plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", "--serviceaccount=default:planner")
    author = "csi-node-sidecar-drain-rule-author"
    plane.kubectl("create", "rolebinding", author, "--namespace=default", f"--clusterrole={author}", "--serviceaccount=default:team")
    cluster.made += [
        f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{role}",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/{author}",
    ]
    return {name: Person(plane, plane.token_for(namespace="default", service_account=name)) for name in ("planner", "team")}


MAINTENANCE = create(PLANNED, declared(PLANNED, BY_NAME, "m2"))
RULE = create(RULES, declared(RULES, {"podSelector": {}}))
ELSEWHERE = create(RULES.replace("/default/", "/kube-system/"), RULE.content)


def test_who_plans_maintenances_may_do_that_and_touch_no_node(cluster: Secured, people: dict[str, Person]) -> None:
    planner = people["planner"]
    until(lambda: MAINTENANCE.by(planner)[0] == 201, "the right is in force")
    allowed(patch(f"{PLANNED}/m1", {"spec": {"stage": "Drain"}}), planner)
    allowed(delete(f"{PLANNED}/m1"), planner)
    for each in (patch(f"{PLANNED}/m1/status", {"status": {"nodes": 7}}), RULE, cordon(), patch(NODE, {"metadata": {"labels": {"a": ""}}})):
        assert each.by(planner)[0] == 403, each


def test_a_team_may_make_rules_in_its_namespace_and_nothing_else(cluster: Secured, people: dict[str, Person]) -> None:
    team = people["team"]
    until(lambda: RULE.by(team)[0] == 201, "the right is in force")
    refused = (ELSEWHERE, MAINTENANCE, patch(f"{PLANNED}/m1", {"spec": {"stage": "Drain"}}), delete(f"{PLANNED}/m1"), cordon())
    for each in (*refused, create(f"{PODS}/x/eviction", body(May("default", "x", "u")))):
        assert each.by(team)[0] == 403, each
