"""The component that has claims watched by label is switched on and off under load: policy, rights and flag at once, as one applies it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import REPOSITORY, until
from sidecar.model import names
from tests.cluster.scenes import NAMESPACE, SIDECAR, Installation, Json, claim, under_load

DEPLOY = REPOSITORY / "deploy"
BY_LABEL = "csi_node_sidecar_claims_by_label"
PYTHON = "/opt/csi-node-sidecar/bin/python"
LOOKS_FOR = 60.0


@pytest.fixture
def by_label(installed: Installation, tmp_path: Path) -> Iterator[list[Json]]:
    """The base with the component, as its page says. Afterwards nothing of it is left."""
    base = list(yaml.safe_load_all(installed.kubectl("kustomize", str(DEPLOY / "base"))))
    to = os.path.relpath(DEPLOY, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{to}/base]\ncomponents: [{to}/components/scoped-watches]\n")
    objects = list(yaml.safe_load_all(installed.kubectl("kustomize", str(tmp_path))))
    added = [item for item in objects if _key(item) not in {_key(item) for item in base}]
    assert {item["kind"] for item in added} >= {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    yield objects
    installed.kubectl("delete", "--ignore-not-found", "--filename=-", input=yaml.safe_dump_all(added))
    installed.install()


def test_switched_on_and_off_under_load(installed: Installation, by_label: Sequence[Json]) -> None:
    with under_load(installed, "scope-") as load:
        time.sleep(3)
        installed.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(by_label))
        installed.await_rollout()
        until(lambda: _hear_by_label(installed), "both sidecars to hear claims by label", seconds=LOOKS_FOR)
        time.sleep(5)
        installed.install()
        without = [item for item in by_label if item["kind"].startswith("MutatingAdmissionPolicy")]
        installed.kubectl("delete", "--filename=-", input=yaml.safe_dump_all(without))
        time.sleep(5)
    load.check()
    installed.check_books()
    installed.delete_claims("scope-")


def test_the_policy_goes_and_comes_under_load(installed: Installation, by_label: Sequence[Json]) -> None:
    installed.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(by_label))
    installed.await_rollout()
    policy = yaml.safe_dump_all([item for item in by_label if item["kind"].startswith("MutatingAdmissionPolicy")])
    until(lambda: _labels(installed), "the policy to be in force", seconds=LOOKS_FOR)
    with under_load(installed, "policy-") as load:
        time.sleep(3)
        installed.kubectl("delete", "--filename=-", input=policy)
        until(lambda: not _labels(installed), "the policy to be gone", seconds=LOOKS_FOR)
        time.sleep(15)
        installed.kubectl("apply", "--filename=-", input=policy)
        until(lambda: _labels(installed), "the policy to be in force again", seconds=LOOKS_FOR)
        time.sleep(5)
    load.check()
    installed.check_books()
    installed.delete_claims("policy-")


def _key(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _labels(installed: Installation) -> bool:
    made = installed.kubectl("create", "--dry-run=server", "--output=yaml", "--filename=-", input=yaml.safe_dump(claim("trial")))
    return names.CLAIM_LABEL in yaml.safe_load(made)["metadata"].get("labels", {})


def _hear_by_label(installed: Installation) -> bool:
    read = "import urllib.request as request; print(request.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
    for item in installed.pods().values():
        where = (f"--namespace={NAMESPACE}", item["metadata"]["name"], f"--container={SIDECAR}")
        if f"{BY_LABEL} 1.0" not in installed.kubectl("exec", *where, "--", PYTHON, "-c", read):
            return False
    return True
