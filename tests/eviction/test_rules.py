"""Which pods are never evicted by us, whoever asks."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.eviction.rules import May, MayNot, may_evict
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
