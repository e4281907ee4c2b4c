"""The policy that labels claims: its rule stands there twice and is one, and the older version differs in nothing but the version."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, binaries, until
from sidecar.model import names
from tests.contract.objects import claim
from tests.deploy.manifests import DEPLOY, Json, rendered, the, written

COMPONENT, OLDER = "scoped-watches", "scoped-watches-v1beta1"


def flat(value: Any) -> Any:
    """With each text on one line: kustomize breaks the lines of an expression anew."""
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    if isinstance(value, list):
        return [flat(item) for item in value]
    return " ".join(value.split()) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def policy() -> Json:
    return the(names.MUTATING_POLICY, written("components", COMPONENT, "policy.yaml"))


def test_the_rule_of_the_condition_is_that_of_the_mutation(policy: Json) -> None:
    (condition,), (mutation,) = policy["spec"]["matchConditions"], policy["spec"]["mutations"]
    condition, mutation = flat([condition["expression"], mutation["applyConfiguration"]["expression"]])
    compared = re.fullmatch(r"object\.metadata\.\?labels\[\?'(.+?)'\]\.orValue\(''\) != (.+)", condition)
    given = re.fullmatch(r"Object\{metadata: Object\.metadata\{labels: \{'(.+?)': (.+)\}\}\}", mutation)
    assert compared and given
    assert compared.groups() == given.groups()
    assert compared[1] == names.CLAIM_LABEL


def test_policy_and_binding_have_the_name_that_the_program_knows(policy: Json) -> None:
    assert policy["spec"]["failurePolicy"] == "Ignore", "no claim is refused for the policy's sake"
    assert policy["spec"]["matchConstraints"].keys() == {"resourceRules"}, "no claim is left out"
    binding = the(names.MUTATING_POLICY_BINDING, written("components", COMPONENT, "policy.yaml"))
    assert {policy["metadata"]["name"], binding["metadata"]["name"]} == {names.CLAIM_POLICY}
    assert binding["spec"] == {"policyName": names.CLAIM_POLICY}


@pytest.mark.real_api
def test_the_older_version_differs_in_nothing_but_the_version(tmp_path: Path) -> None:
    newer, older = (_rendered(tmp_path, component) for component in (COMPONENT, OLDER))
    kinds = {names.MUTATING_POLICY: "v1beta1", names.MUTATING_POLICY_BINDING: "v1beta1", "ClusterRole": "v1"}
    assert {item["kind"]: item["apiVersion"].rpartition("/")[2] for item in older} == kinds
    assert [item | {"apiVersion": ""} for item in newer] == [item | {"apiVersion": ""} for item in older]
    files = [item for file in ("policy.yaml", "rbac.yaml") for item in written("components", COMPONENT, file)]
    assert {item["kind"]: flat(item) for item in newer} == {item["kind"]: flat(item) for item in files}


SELECTING = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: selects-a-node-later}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [persistentvolumeclaims], operations: [CREATE], scope: "*"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'volume.kubernetes.io/selected-node': 'n2'}}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: selects-a-node-later}
spec: {policyName: selects-a-node-later}
"""


@pytest.mark.real_api
def test_the_older_version_works_and_has_the_last_word(tmp_path: Path) -> None:
    """This API server still has it, by the flag that 1.34 and 1.35 need too."""
    flags = {"apiserver": [f"--runtime-config={names.ADMISSION_GROUP}/v1beta1=true"]}
    objects = yaml.safe_dump_all(_rendered(tmp_path, OLDER))
    with ControlPlane(binaries("core"), tmp_path / "plane", extra_args=flags) as plane:
        plane.kubectl("apply", "--validate=strict", "-f", "-", input=objects)
        assert "configured" not in plane.kubectl("apply", "-f", "-", input=objects), "applied again it is unchanged"

        def made() -> Json:
            path = "/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All"
            body = claim("a") | {"metadata": {"name": "a", "annotations": {names.SELECTED_NODE: "n1"}}}
            return dict(plane.request("POST", path, body)["metadata"])

        until(lambda: made().get("labels"), "the policy is in force", seconds=30)
        assert made()["labels"] == {names.CLAIM_LABEL: "node.n1"}
        plane.apply(SELECTING)
        until(lambda: made()["annotations"] == {names.SELECTED_NODE: "n2"}, "the other policy is in force", seconds=30)
        assert made()["labels"] == {names.CLAIM_LABEL: "node.n2"}


def _rendered(folder: Path, component: str) -> list[Json]:
    """Kustomize takes no absolute paths, so the components are copied beside what names them."""
    shutil.copytree(DEPLOY / "components", folder / "components", dirs_exist_ok=True)
    place = folder / f"with-{component}"
    place.mkdir()
    whole = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "components": [f"../components/{component}"]}
    (place / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    return rendered(place)
