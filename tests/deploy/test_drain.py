"""The component for drain decisions: what it adds to the base, and that names and rights in it are those the program goes by."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sidecar.config.parse import Parsed, parse
from sidecar.drain.maintenance.objects import Entry
from sidecar.drain.maintenance.plan import Peer
from sidecar.drain.maintenance.step import Progress, decide
from sidecar.failover.unit import IGNORED_BY_PIRAEUS
from sidecar.kube.api import PODS
from sidecar.model import names
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE, Json, containers, granted, rendered, the, written
from tests.drain.test_maintenance_plan import A, B, maintenance
from tests.drain.test_maintenance_step import AT_WORK, NOW, view

ADDED = ["--node-drain-policy=NoSchedule", "--drain-report=true"]
COMPONENT = ("components", "drain")
POLICIES = {"own-node", "own-report", "own-lease", "words-of-people", "eviction"}
GATE = ("components", "gate")
GATE_POLICIES = {"guard", "budget", "gate-delete", "gate-of-others"}


def by_name(objects: list[Json]) -> dict[tuple[str, str], Json]:
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


# --- what it adds -----------------------------------------------------------------------------------------------------


@pytest.mark.real_api
def test_it_adds_its_objects_and_two_flags_and_changes_nothing_else() -> None:
    base, drained = by_name(rendered(DEPLOY / "base")), by_name(rendered(DEPLOY / "overlays" / "drained"))
    key = ("DaemonSet", "csi-node-sidecar-driver")
    sidecar = containers(drained[key])["csi-provisioner"]
    assert sidecar["args"] == [*containers(base[key])["csi-provisioner"]["args"], *ADDED]
    sidecar["args"] = sidecar["args"][: -len(ADDED)]
    assert {name: drained[name] for name in base} == base
    assert {kind for kind, _ in drained.keys() - base.keys()} == {
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }


@pytest.mark.real_api
def test_the_sidecar_takes_the_flags_without_a_warning() -> None:
    args = containers(the("DaemonSet", rendered(DEPLOY / "overlays" / "drained")))["csi-provisioner"]["args"]
    parsed = parse(args, {"NODE_NAME": "x", "NAMESPACE": "x", "POD_NAME": "x"})
    assert isinstance(parsed, Parsed)
    assert parsed.warnings == ()
    assert str(parsed.config.node_drain_policy) == "NoSchedule"
    assert parsed.config.drain_report


# --- the report's type ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report_type() -> Json:
    return the("CustomResourceDefinition", written(*COMPONENT, "crd.yaml"))


def test_the_type_is_the_one_the_program_writes(report_type: Json) -> None:
    spec, version = report_type["spec"], report_type["spec"]["versions"][0]
    assert f"{spec['group']}/{version['name']}" == names.REPORT_VERSION
    assert (spec["names"]["kind"], spec["scope"]) == (names.REPORT_KIND, "Cluster")
    assert report_type["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert version["subresources"] == {"status": {}}


def test_the_type_keeps_all_that_is_said_of_a_maintenance(report_type: Json) -> None:
    """What it does not know the API server leaves out without a word, and nodes wait for one another by it."""
    first, second = maintenance(A, Entry(priority=5)), maintenance(B, Entry(priority=9), deadline=60.0)
    record = replace(AT_WORK, of={first.uid: Progress(A, 0, NOW), second.uid: Progress(B, 1, NOW)})
    (_, said) = decide(view(first, second, record=record, peers=(Peer("n2", 0),))).status
    assert said["limitedBy"] and said["waitingFor"] and said["pods"]
    status = report_type["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    known = status["maintenance"]["items"]["properties"]
    assert said.keys() == known.keys()
    for field in ("waitingFor", "pods"):
        assert said[field][0].keys() == known[field]["items"]["properties"].keys()


# --- rights -----------------------------------------------------------------------------------------------------------

LOOK = ("get", "list", "watch")
AT_BASE = ("coordination.k8s.io", "leases")


def test_nobody_s_pod_can_be_touched() -> None:
    rules = granted(the("ClusterRole", written(*COMPONENT, "rbac.yaml"))["rules"])
    assert {verb for _, resource, verb in rules if resource.startswith(PODS.plural)} <= set(LOOK)


def test_rights_and_policies_are_for_the_account_the_pods_run_under() -> None:
    account = the("ServiceAccount", written("base", "rbac.yaml"))["metadata"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    for kind, component in (("ClusterRole", COMPONENT), ("Role", GATE)):
        ours = written(*component, "rbac.yaml")
        binding = the(f"{kind}Binding", ours)
        assert binding["subjects"] == [subject]
        assert binding["roleRef"]["name"] == the(kind, ours)["metadata"]["name"]
    user = f"request.userInfo.username == 'system:serviceaccount:{account['namespace']}:{account['name']}'"
    for policy in policies():
        conditions = [condition["expression"] for condition in policy["spec"]["matchConditions"]]
        assert conditions[:1] == [user]
        assert len(conditions) == (2 if named(policy).endswith(("own-lease", "gate-of-others")) else 1)
    assert the("Role", ours)["metadata"]["namespace"] == account["namespace"] == NAMESPACE


# --- policies ---------------------------------------------------------------------------------------------------------


def policies() -> list[Json]:
    return [item for item in admission() if item["kind"] == "ValidatingAdmissionPolicy"]


def named(policy: Json) -> str:
    """Without whose it is."""
    return str(policy["metadata"]["name"].partition("--")[0])


def admission() -> list[Json]:
    return [item for component in (COMPONENT, GATE) for item in written(*component, "admission.yaml")]


def test_every_policy_is_bound_and_denies_also_when_it_cannot_judge() -> None:
    bindings = {item["spec"]["policyName"]: item["spec"]["validationActions"] for item in admission() if item["kind"].endswith("Binding")}
    assert bindings == {f"csi-node-sidecar-{name}--{DRIVER}--{NAMESPACE}": ["Deny"] for name in POLICIES | GATE_POLICIES}
    assert {policy["metadata"]["name"]: policy["spec"]["failurePolicy"] for policy in policies()} == dict.fromkeys(bindings, "Fail")


def test_every_write_that_the_roles_allow_is_looked_at() -> None:
    looked_at = {
        (group, resource, operation)
        for policy in policies()
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    rules = [rule for component in (COMPONENT, GATE) for item in written(*component, "rbac.yaml") for rule in item.get("rules", ())]
    at_base = granted(the("Role", written("base", "rbac.yaml"))["rules"])
    # The right to write leases is the base's, as it is upstream's.
    writes = {item for item in granted(rules) if item[2] not in LOOK} | {
        item for item in at_base if item[:2] == AT_BASE and item[2] not in LOOK
    }
    assert {verb for group, resource, verb in writes if (group, resource) == AT_BASE} == {"create", "update", "delete"}
    assert {(group, resource, OPERATIONS[verb]) for group, resource, verb in writes} <= looked_at
    # That of claims is the base's, and that to evict is of components beyond this one.
    assert {item[:2] for item in looked_at} - {("", "persistentvolumeclaims"), ("", "pods/eviction")} == {item[:2] for item in writes}


OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
# Annotations; the state of an evacuation is a label.
MARKS = (names.DRAIN_RECORD, names.AUTOSCALER_MARKER)


def test_what_people_say_of_volumes_is_theirs_alone() -> None:
    (text,) = (str(policy) for policy in policies() if named(policy).endswith("words-of-people"))
    for word in (
        names.ACKNOWLEDGED,
        names.DRAIN_POLICY,
        names.DRAIN_POLICY_REBOOT,
        names.DRAIN_POLICY_RETIRE,
        names.FAILOVER,
        IGNORED_BY_PIRAEUS,
    ):
        assert repr(word) in text.replace('"', "'").replace("\\", "")


def test_what_may_change_on_a_node_is_what_the_program_writes() -> None:
    text = str(next(policy for policy in policies() if named(policy).endswith("own-node")))
    for word in (names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT, names.DRAIN_READY, names.RETIRE_READY):
        assert word in text
    assert f"variables.driver.lowerAscii() + '.{names.GROUP}/'" in text
    listed = re.search(r"\[([^]]+)\][.]map\(name, variables[.]prefix [+] name\)", text)
    assert listed is not None and tuple(re.findall(r"[\w-]+", listed[1])) == MARKS
    for name in (names.EVACUATION_STATE, names.MAINTENANCE_RECORD, names.STORAGE_LOST):
        assert f"variables.prefix + '{name}'" in text
    assert str([names.MAINTENANCE_PLANNED, names.MAINTENANCE_IN_PROGRESS, names.DRAIN_IN_PROGRESS, names.DRAINED]) in text
    assert f"== '{names.MAINTENANCE_KIND}'" in text
    assert names.GUARDED_NODE in str(next(policy for policy in policies() if named(policy).endswith("sidecar-budget")))
    of_leases = str(next(policy for policy in policies() if named(policy).endswith("own-lease")))
    assert all(label in of_leases for label in (names.SLOT_FOR, names.REPROVISION_FOR, names.NODE_LOSS_FOR, names.FAILOVER_FOR))
    assert names.GUARDED_FOR not in of_leases
    judged = re.search(r"matches\('([^']+)'\)", of_leases)
    assert judged is not None
    leases = (names.evacuation_slot(0, "d"), names.reprovision("u", "d"), names.watch("d"), names.failover("d"))
    assert all(re.match(judged[1], name) for name in leases)
