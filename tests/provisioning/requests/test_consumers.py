"""Who comes to a closed node all the same, and what is said where that is not known."""

from typing import Any

from sidecar.model.names import HANDED_BACK
from sidecar.model.nodes import Pod, Taint
from sidecar.model.standing import Standing
from sidecar.provisioning.needs import PODS, Absent, Facts, Need, Ref
from sidecar.provisioning.requests.consumers import MOST_NODES, consumers, slim, why_here
from tests.harness import samples
from tests.harness.provisioning.pods import CORDON, Json, pod_json, tolerating

EVACUATION = Taint("csi-node-sidecar.io/evacuate", "retire", "NoSchedule")
CLOSED = Standing(closed=True, why="it is cordoned", since="S", taints=(CORDON,))
REF = Ref(PODS, "", "fake-ns")


def known(*pods: Json) -> Facts:
    return {REF: {"items": [slim(pod) for pod in pods]}}


def why(facts: Facts, standing: Standing = CLOSED, **claim: Any) -> str | Need:
    return why_here("foo", standing, samples.claim(selected="foo", **claim), facts)


def test_pods_are_asked_for_only_when_they_matter() -> None:
    assert why({}) == Need(frozenset({REF}))
    assert why({}, annotations={HANDED_BACK: "foo@S"}) == "it was already handed back once for this closing and came back"


def test_another_closing_is_another_matter() -> None:
    for note in ["foo@R", "bar@S", "", "foo", ",,@"]:
        assert why(known(), annotations={HANDED_BACK: note}) == ""


def test_nodes_that_close_one_after_the_other_do_not_pass_a_claim_round_for_ever() -> None:
    nodes = [f"n{number}@S" for number in range(MOST_NODES)]
    assert why(known(), annotations={HANDED_BACK: ",".join(nodes[1:])}) == ""
    assert why(known(), annotations={HANDED_BACK: ",".join(nodes)}) == "16 closed nodes have handed it back already"


def test_where_no_pod_comes_it_is_handed_back() -> None:
    for pods in [
        [],
        [pod_json()],
        [pod_json(claim="other", **tolerating(CORDON))],
        [pod_json(namespace="other", **tolerating(CORDON))],
        [pod_json(phase="Succeeded", **tolerating(CORDON))],
        [pod_json(**tolerating(EVACUATION))],
    ]:
        assert why(known(*pods)) == ""


def test_a_pod_that_tolerates_the_cordon_comes_here() -> None:
    assert why(known(pod_json("a"), pod_json("b", **tolerating(CORDON)))) == "pod fake-ns/b tolerates the cordon"


def test_where_nothing_keeps_pods_off_to_tolerate_it_says_nothing() -> None:
    for taints in [(), (Taint("k", "", "PreferNoSchedule"),)]:
        assert why(known(pod_json()), Standing(closed=True, taints=taints)) == ""


def test_a_pod_that_is_on_the_node_already_stays_there() -> None:
    assert why(known(pod_json(nodeName="foo"))) == "pod fake-ns/db-0 is on the node already"
    assert why(known(pod_json(nodeName="bar"))) == ""


def test_the_claim_of_an_ephemeral_volume_is_its_owners_and_not_a_namesakes() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "uid-of-db-0", "controller": True}
    claim = samples.claim(meta={"name": "db-0-data", "ownerReferences": [owner]})
    ephemeral = pod_json() | {"spec": {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]}}
    namesake = ephemeral | {"metadata": {**ephemeral["metadata"], "uid": "another"}}
    guest = pod_json("guest", claim="db-0-data")
    assert [pod.uid for pod in consumers(claim, [Pod.of(namesake), Pod.of(ephemeral)])] == ["uid-of-db-0"]
    assert [pod.name for pod in consumers(claim, [Pod.of(guest)])] == ["guest"]


def test_pods_that_may_not_be_listed_are_no_reason_to_hand_it_back() -> None:
    said = why({REF: Absent("pods is forbidden")})
    assert isinstance(said, str) and said.startswith("which pods use it is not known") and "pods is forbidden" in said
    assert "grant this program list on pods" in said and said.endswith("so it is provisioned")
