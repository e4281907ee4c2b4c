"""The component that keeps each sidecar to its own node: what it adds, whom it looks at, and that it says what the program says."""

from __future__ import annotations

from sidecar.model import names
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE, Json, the, written

FOLDER = DEPLOY / "components" / "own-node"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
KIND = "ValidatingAdmissionPolicy"


def objects() -> list[Json]:
    return [item for file in FILES for item in written("components", "own-node", file)]


def policies() -> list[Json]:
    return [item for item in objects() if item["kind"] == KIND]


def test_every_policy_is_bound_and_denies_also_when_it_cannot_judge() -> None:
    bindings = {item["spec"]["policyName"]: item["spec"]["validationActions"] for item in objects() if item["kind"] == f"{KIND}Binding"}
    assert bindings == {item["metadata"]["name"]: ["Deny"] for item in policies()}
    assert {item["spec"]["failurePolicy"] for item in policies()} == {"Fail"}


def test_a_policy_is_about_the_account_and_the_driver_of_the_base() -> None:
    account = the("ServiceAccount", written("base", "rbac.yaml"))["metadata"]["name"]
    for policy in policies():
        (condition, *_) = policy["spec"]["matchConditions"]
        assert condition["name"] == "the-sidecar"
        assert condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{account}'"
        assert {item["expression"] for item in policy["spec"]["variables"] if item["name"] == "driver"} <= {f"'{DRIVER}'"}


def test_what_they_name_is_what_the_program_writes() -> None:
    volumes = str(written("components", "own-node", "volumes.yaml"))
    for word in (names.VOLUME_FINALIZER, names.PROVISIONER_IDENTITY, names.PROVISIONED_BY, f"{names.GROUP}/"):
        assert f"'{word}'" in volumes.replace("\\", "")
    claims = str(written("components", "own-node", "claims.yaml"))
    provisioners = (names.STORAGE_PROVISIONER, names.STORAGE_PROVISIONER_BETA)
    for word in (names.SELECTED_NODE, names.CLAIM_LABEL, names.HANDED_BACK, names.TRIED_BY, names.CLONE_FINALIZER, *provisioners):
        assert f"'{word}'" in claims.replace("\\", "")
    events = str(written("components", "own-node", "events.yaml"))
    assert str([names.CLAIM, names.VOLUME, names.NODE]) in events.replace("\\", "")
    assert str([names.POD_EVICTED, names.REPLICA_READY, names.POD_FAILED_OVER, names.FAILOVER_BLOCKED]) in events.replace("\\", "")
    assert f"'{names.ATTACHMENT}'" in events.replace("\\", "") and f"'{names.VOLUME_DETACHED}'" in events.replace("\\", "")
    capacities = str(written("components", "own-node", "capacities.yaml"))
    for word in (names.CAPACITY_DRIVER_LABEL, names.CAPACITY_MANAGER_LABEL, names.capacity_manager("")):
        assert f"'{word}'" in capacities.replace("\\", "")
    assert f"'{names.SNAPSHOT_FINALIZER}'" in str(written("components", "own-node", "snapshots.yaml")).replace("\\", "")
