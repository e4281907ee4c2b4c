"""Which pods are never evicted by us, whoever asks."""

from dataclasses import replace

from sidecar.eviction.rules import May, may_evict
from sidecar.model import names
from sidecar.model.objects import Owner
from tests.harness.drain.samples import NAMESPACE, NODE, owner, pod, stamp


def test_a_pod_of_this_node_may_be_evicted_under_its_uid() -> None:
    wanted = pod("db-0")
    assert may_evict(wanted, node=NODE) == May(NAMESPACE, "db-0", wanted.uid)


def test_what_is_left_where_it_is() -> None:
    for changes, said in [
        ({"static": True}, "static"),  # static
        ({"owner": owner("DaemonSet", "agent")}, "DaemonSet"),  # daemon-set
        ({"node": "n2"}, "n2"),  # another-node
        ({"node": ""}, "no node"),  # no-node
        ({"uid": ""}, "uid"),  # no-uid
        ({"labels": {names.GUARDED_NODE: "uid-n1"}, "namespace": "system", "name": "guard"}, "our own"),  # guard
        ({"namespace": "system"}, "our own"),  # ourselves
        ({"phase": "Succeeded"}, "ended"),  # succeeded
        ({"phase": "Failed"}, "ended"),  # failed
        ({"deleting_since": stamp()}, "deleted already"),  # being-deleted
    ]:
        decision = may_evict(replace(pod("db-0"), **changes), node=NODE, ours={"system/db-0"})
        assert isinstance(decision, str)
        assert said in decision


def test_a_label_of_ours_keeps_nobody_elsewhere() -> None:
    guard = pod(labels={names.GUARDED_NODE: "uid-n1"})
    assert isinstance(may_evict(guard, node=NODE, ours={"system/sidecar"}), May)
    assert isinstance(may_evict(guard, node=NODE), str), "where it is not known which namespace is ours"


def test_a_kind_of_others_that_is_called_daemon_set_protects_nobody() -> None:
    foreign = Owner("apps.kruise.io/v1alpha1", "DaemonSet", "agent", "uid-agent", controller=True)
    assert isinstance(may_evict(pod(owner=foreign), node=NODE), May)


def test_without_a_name_of_our_own_node_nobody_is_evicted() -> None:
    assert isinstance(may_evict(pod(node=""), node=""), str)
