"""Which pods are never evicted by us, whoever asks."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.eviction.rules import May, MayNot, may_evict, may_evict_waiting
from sidecar.model import names
from sidecar.model.objects import Owner
from tests.harness.drain.samples import NAMESPACE, NODE, owner, pod, stamp


def test_a_pod_of_this_node_may_be_evicted_under_its_uid() -> None:
    wanted = pod("db-0")
    assert may_evict(wanted, node=NODE) == May(NAMESPACE, "db-0", wanted.uid)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"static": True}, "static", id="static"),
        pytest.param({"owner": owner("DaemonSet", "agent")}, "DaemonSet", id="daemon-set"),
        pytest.param({"node": "n2"}, "n2", id="another-node"),
        pytest.param({"node": ""}, "no node", id="no-node"),
        pytest.param({"uid": ""}, "uid", id="no-uid"),
        pytest.param({"labels": {names.GUARDED_NODE: "uid-n1"}, "namespace": "system", "name": "guard"}, "our own", id="guard"),
        pytest.param({"namespace": "system"}, "our own", id="ourselves"),
        pytest.param({"phase": "Succeeded"}, "ended", id="succeeded"),
        pytest.param({"phase": "Failed"}, "ended", id="failed"),
        pytest.param({"deleting_since": stamp()}, "deleted already", id="being-deleted"),
    ],
)
def test_what_is_left_where_it_is(changes: dict[str, Any], said: str) -> None:
    decision = may_evict(replace(pod("db-0"), **changes), node=NODE, ours={"system/db-0"})
    assert isinstance(decision, MayNot)
    assert said in decision.why


def test_a_label_of_ours_keeps_nobody_elsewhere() -> None:
    guard = pod(labels={names.GUARDED_NODE: "uid-n1"})
    assert isinstance(may_evict(guard, node=NODE, ours={"system/sidecar"}), May)
    assert isinstance(may_evict(guard, node=NODE), MayNot), "where it is not known which namespace is ours"


def test_a_kind_of_others_that_is_called_daemon_set_protects_nobody() -> None:
    foreign = Owner("apps.kruise.io/v1alpha1", "DaemonSet", "agent", "uid-agent", controller=True)
    assert isinstance(may_evict(pod(owner=foreign), node=NODE), May)


def test_without_a_name_of_our_own_node_nobody_is_evicted() -> None:
    assert isinstance(may_evict(pod(node=""), node=""), MayNot)


# --- pods that wait for a node --------------------------------------------------------------------------------------------


def test_a_pod_without_a_node_may_be_evicted_in_the_version_in_which_it_had_none() -> None:
    wanted = pod("db-0", node="")
    assert may_evict_waiting(wanted, version="7") == May(NAMESPACE, "db-0", wanted.uid, "7")


@pytest.mark.parametrize(
    ("changes", "version", "said"),
    [
        pytest.param({"node": NODE}, "7", f"has a node by now, {NODE}", id="it has one by now"),
        pytest.param({"node": "n2"}, "7", "has a node by now, n2", id="another one"),
        pytest.param({}, "", "which version", id="its version is not known"),
        pytest.param({"uid": ""}, "7", "uid", id="no-uid"),
        pytest.param({"owner": owner("DaemonSet", "agent")}, "7", "DaemonSet", id="daemon-set"),
        pytest.param({"namespace": "system"}, "7", "our own", id="ourselves"),
        pytest.param({"deleting_since": stamp()}, "7", "deleted already", id="being-deleted"),
    ],
)
def test_which_pod_without_a_node_is_left_alone(changes: dict[str, Any], version: str, said: str) -> None:
    decision = may_evict_waiting(replace(pod("db-0", node=""), **changes), version=version, ours={"system/db-0"})
    assert isinstance(decision, MayNot)
    assert said in decision.why
