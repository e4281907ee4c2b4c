"""As `test_rights_matrix`, for a command that people run with a role of its own: `label`."""

from __future__ import annotations

import pytest
import yaml

from hack.lib.programs import LATE, claim, storage_class
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import CLASSES as CLASS
from sidecar.rights.rights import Right
from tests.e2e.accounts import Rules, account
from tests.e2e.conftest import CLAIMS, CLASSES, Cluster
from tests.e2e.draining import COMPONENTS, command
from tests.e2e.lacking import naming, without

DRIVER = "labelled.example"
RIGHTS = (Right("list", CLAIM), Right("patch", CLAIM), Right("list", CLASS))


def rules() -> Rules:
    items = yaml.safe_load_all((COMPONENTS / "scoped-watches" / "rbac.yaml").read_text())
    return [rule for item in items for rule in item.get("rules", ())]


def test_each_right_of_the_role_has_a_story() -> None:
    granted = {(verb, resource) for rule in rules() for verb in rule["verbs"] for resource in rule["resources"]}
    assert granted == {(right.verb, right.resource.plural) for right in RIGHTS}


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_label_ends_and_names_the_right(cluster: Cluster, right: Right) -> None:
    cluster.create(CLASSES, storage_class("late", DRIVER, LATE))
    cluster.create(CLAIMS, claim("a", "late"))
    with account(cluster, "person", without(right, rules())) as kubeconfig:
        done = command(kubeconfig, "label", f"--driver={DRIVER}")
    assert done.returncode == 1, done
    (told,) = naming(right, done.stderr.splitlines())
    assert "right" in told
