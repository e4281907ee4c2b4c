"""The policy of deploy/components/scoped-watches: whatever a claim says and whoever writes it, its label is `names.claim_label` of it."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model import names
from sidecar.model.objects import claim_provisioner, selected_node
from tests.contract.claim_policy import ASKED, ASKED_BETA, CLAIMS, LABEL, NODE, claim_with, in_force
from tests.contract.conftest import Server
from tests.contract.http_client import APPLY_PATCH, Answer, HttpClient, Json, http_client

_numbers = itertools.count(1)
OWN = {"app": "db"}


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[HttpClient]:
    with http_client(server.kubeconfig) as http, in_force(http):
        yield http


def fresh() -> str:
    return f"labelled-{next(_numbers)}"


def should_be(stored: Json, *, uid: str | None = None) -> str:
    return names.claim_label(
        selected_node=selected_node(stored),
        provisioner=claim_provisioner(stored),
        volume_name=stored["spec"].get("volumeName", ""),
        uid=stored["metadata"]["uid"] if uid is None else uid,
    )


# --- what a claim says --------------------------------------------------------------------------------------------------

LONGEST = "node-" + "a" * 243 + ".com"
SAID = {
    "nothing": ({}, "", "waiting"),
    "a node": ({NODE: "n1"}, "", "node.n1"),
    "a node with dots": ({NODE: "n1.eu-1.example.com", ASKED: "d"}, "", "node.n1.eu-1.example.com"),
    "the longest name of a node": ({NODE: LONGEST}, "", "node.node-" + "a" * 24 + "_" + "a" * 24 + ".com"),
    "what is no node": ({NODE: "No Node", ASKED: "d"}, "", "waiting"),
    "an empty node": ({NODE: ""}, "", "waiting"),
    "bound to a volume of a node": ({NODE: "n1", ASKED: "d"}, "v", "node.n1"),
    "bound, and no node": ({ASKED: "d"}, "v", "waiting"),
    "bound by hand": ({}, "v", "waiting"),
    "an empty driver, and one by the old name": ({ASKED: "", ASKED_BETA: "d"}, "", "waiting"),
}


@pytest.mark.parametrize(("notes", "volume", "label"), SAID.values(), ids=SAID.keys())
def test_what_a_claim_says(http: HttpClient, notes: dict[str, str], volume: str, label: str) -> None:
    made = http.send("POST", CLAIMS, claim_with(fresh(), notes, volume=volume, labels=OWN))
    assert made.labels == OWN | {LABEL: label}


@pytest.mark.parametrize("asked", [ASKED, ASKED_BETA])
def test_an_open_claim_is_in_the_shard_of_its_uid(http: HttpClient, asked: str) -> None:
    name = fresh()
    made = http.send("POST", CLAIMS, claim_with(name))
    opened = http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": {asked: "d"}}}, content=MERGE_PATCH)
    assert (made.labels, opened.labels) == ({LABEL: "waiting"}, {LABEL: f"open.{made.body['metadata']['uid'][-2:]}"})


def test_a_claim_that_is_made_open_has_no_uid_yet_and_gets_its_shard_with_the_next_write(http: HttpClient) -> None:
    name = fresh()
    made = http.send("POST", CLAIMS, claim_with(name, {ASKED: "d"}, uid="00000000-0000-4000-8000-0000000000ff"))
    assert made.labels == {LABEL: "open.00"}
    touched = http.send("PATCH", f"{CLAIMS}/{name}", {}, content=MERGE_PATCH)
    assert touched.labels == {LABEL: f"open.{made.body['metadata']['uid'][-2:]}"}


node_names = st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,260}[a-z0-9])?\Z") | st.text(alphabet="aZ9-._ \n/é", max_size=8)
node_names |= st.tuples(st.sampled_from("ab-"), st.sampled_from([57, 58, 59, 252, 253, 254]), st.just("z")).map(
    lambda parts: parts[2] + parts[0] * (parts[1] - 2) + parts[2]
)
drivers = st.sampled_from(["", "d", "driver.example"])
annotations = st.fixed_dictionaries({}, optional={NODE: node_names, ASKED: drivers, ASKED_BETA: drivers})


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(notes=annotations, bound=st.booleans())
@example(notes={NODE: "a" * 200_000, ASKED: "d"}, bound=False)
def test_the_rule_in_the_policy_is_the_rule_in_python(http: HttpClient, notes: dict[str, str], bound: bool) -> None:
    name = "bound-twin" if bound else "twin"
    if http.try_to_send("GET", f"{CLAIMS}/{name}").status == 404:
        http.send("POST", CLAIMS, claim_with(name, volume="v" if bound else ""))
    tried = http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": notes}}, content=MERGE_PATCH, dryRun="All")
    assert tried.labels == {LABEL: should_be(tried.body)}


# --- who writes it --------------------------------------------------------------------------------------------------------

Write = Callable[[HttpClient, str, Json], Answer]
"""Gives the claim of that name these metadata, by one way of writing."""


def put(subresource: str = "") -> Write:
    def write(http: HttpClient, name: str, meta: Json) -> Answer:
        found = http.send("GET", f"{CLAIMS}/{name}").body
        return http.send("PUT", f"{CLAIMS}/{name}{subresource}", found | {"metadata": found["metadata"] | meta})

    return write


def put_blindly(http: HttpClient, name: str, meta: Json) -> Answer:
    """Without uid and version, as a script would that makes the object anew."""
    spec = http.send("GET", f"{CLAIMS}/{name}").body["spec"]
    return http.send("PUT", f"{CLAIMS}/{name}", {"metadata": {"name": name, **meta}, "spec": spec})


def put_only_a_status(http: HttpClient, name: str, meta: Json) -> Answer:
    """The spec it sends is not stored, so the label must not go by it."""
    spec = claim_with(name, volume="another")["spec"] | {"storageClassName": "another"}
    return http.send("PUT", f"{CLAIMS}/{name}/status", {"metadata": {"name": name, **meta}, "spec": spec, "status": {"phase": "Pending"}})


def patch(content: str, subresource: str = "") -> Write:
    def write(http: HttpClient, name: str, meta: Json) -> Answer:
        return http.send("PATCH", f"{CLAIMS}/{name}{subresource}", {"metadata": meta}, content=content)

    return write


def json_patch(http: HttpClient, name: str, meta: Json) -> Answer:
    steps = [{"op": "add", "path": f"/metadata/{field}", "value": value} for field, value in meta.items()]
    return http.send("PATCH", f"{CLAIMS}/{name}", steps, content=JSON_PATCH)


def apply(manager: str) -> Write:
    def write(http: HttpClient, name: str, meta: Json) -> Answer:
        obj = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, **meta}}
        return http.send("PATCH", f"{CLAIMS}/{name}", obj, content=APPLY_PATCH, fieldManager=manager, force="true")

    return write


WRITES: dict[str, Write] = {
    "put": put(),
    "put without a version": put_blindly,
    "put of the status": put("/status"),
    "put of the status with another spec": put_only_a_status,
    "merge patch": patch(MERGE_PATCH),
    "merge patch of the status": patch(MERGE_PATCH, "/status"),
    "strategic patch": patch(STRATEGIC_MERGE_PATCH),
    "json patch": json_patch,
    "apply": apply("argocd-controller"),
}
TABLE = {
    "opened": {ASKED: "d"},
    "opened by the old name": {ASKED_BETA: "d"},
    "selected": {NODE: "n1"},
    "selected and asked": {NODE: "n1", ASKED: "d"},
}


@pytest.mark.parametrize("notes", TABLE.values(), ids=TABLE.keys())
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_by_whichever_write(http: HttpClient, write: Write, notes: dict[str, str]) -> None:
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, labels=OWN))
    written = write(http, name, {"annotations": notes, "labels": OWN})
    assert written.labels == OWN | {LABEL: should_be(written.body)}
    assert written.labels[LABEL] != "waiting"
    assert http.send("GET", f"{CLAIMS}/{name}").body == written.body


@pytest.mark.parametrize("wish", [{LABEL: "node.elsewhere"}, {LABEL: "made-by-hand"}, {LABEL: ""}, OWN], ids=str)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_whoever_else_sets_the_label_is_overruled(http: HttpClient, write: Write, wish: dict[str, str]) -> None:
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    written = write(http, name, {"labels": wish, "annotations": {NODE: "n1"}})
    assert written.labels == wish | {LABEL: "node.n1"}


@pytest.mark.parametrize("write", [put(), put_blindly, patch(MERGE_PATCH), patch(STRATEGIC_MERGE_PATCH)])
def test_whoever_takes_all_labels_away_leaves_this_one(http: HttpClient, write: Write) -> None:
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}, labels=OWN))
    assert write(http, name, {"labels": None, "annotations": {NODE: "n1"}}).labels == {LABEL: "node.n1"}


@pytest.mark.parametrize("labels", [{LABEL: "node.n2"}, {LABEL: "x" * 63}, None, {}], ids=str)
def test_a_claim_is_made_with_the_right_label_whatever_its_maker_wishes(http: HttpClient, labels: dict[str, str] | None) -> None:
    assert http.send("POST", CLAIMS, claim_with(fresh(), {NODE: "n1"}, labels=labels)).labels == {LABEL: "node.n1"}


def test_a_value_that_no_label_may_have_is_overruled_too(http: HttpClient) -> None:
    name = fresh()
    made = http.send("POST", CLAIMS, claim_with(name, labels={LABEL: "not a value"}))
    assert made.labels == {LABEL: "waiting"}


# --- the life of a claim --------------------------------------------------------------------------------------------------


def test_a_late_claim_changes_its_label_once(http: HttpClient) -> None:
    """As scheduler and volume controller write it."""
    name = fresh()
    labels = [http.send("POST", CLAIMS, claim_with(name)).labels]
    labels.append(put()(http, name, {"annotations": {NODE: "n1"}}).labels)
    labels.append(put()(http, name, {"annotations": {NODE: "n1", ASKED: "d"}}).labels)
    labels += _bound(http, name)
    assert labels == [{LABEL: "waiting"}] + [{LABEL: "node.n1"}] * 5


def test_an_immediate_claim_opens_and_is_taken(http: HttpClient) -> None:
    name = fresh()
    made = http.send("POST", CLAIMS, claim_with(name))
    labels = [made.labels, put()(http, name, {"annotations": {ASKED: "d"}}).labels]
    labels.append(put()(http, name, {"annotations": {NODE: "n1", ASKED: "d"}}).labels)
    labels += _bound(http, name)
    opened = {LABEL: f"open.{made.body['metadata']['uid'][-2:]}"}
    assert labels == [{LABEL: "waiting"}, opened] + [{LABEL: "node.n1"}] * 4


def test_one_that_is_given_back_is_open_again(http: HttpClient) -> None:
    """Also a late one, until the scheduler has selected another node: nothing in it says that it is late."""
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1", ASKED: "d"}))
    back = put()(http, name, {"annotations": {ASKED: "d", names.HANDED_BACK: "n1@1"}})
    assert back.labels == {LABEL: should_be(back.body)} and back.labels[LABEL].startswith("open.")


def test_one_that_goes_to_another_node(http: HttpClient) -> None:
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    assert put()(http, name, {"annotations": {NODE: "n2"}}).labels == {LABEL: "node.n2"}


def test_one_that_a_volume_was_found_for_is_open_no_more(http: HttpClient) -> None:
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name))
    put()(http, name, {"annotations": {ASKED: "d"}})
    assert _bound(http, name) == [{LABEL: "waiting"}] * 3


def _bound(http: HttpClient, name: str) -> list[dict[str, str]]:
    """The labels after each of the volume controller's writes: the volume, the annotations, the status."""
    found = http.send("GET", f"{CLAIMS}/{name}").body
    with_volume = http.send("PUT", f"{CLAIMS}/{name}", found | {"spec": found["spec"] | {"volumeName": "v"}})
    notes = found["metadata"].get("annotations", {}) | {"pv.kubernetes.io/bind-completed": "yes"}
    noted = put()(http, name, {"annotations": notes})
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    bound = http.send("PUT", f"{CLAIMS}/{name}/status", noted.body | {"status": status})
    assert bound.body["status"]["phase"] == "Bound"
    return [with_volume.labels, noted.labels, bound.labels]


def test_a_write_that_changes_nothing_is_none(http: HttpClient) -> None:
    """But the first: with or without the policy the real server encodes a claim anew at its first change."""
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    first, second = (patch(MERGE_PATCH)(http, name, {}) for _ in range(2))
    assert (second.version, second.labels) == (first.version, {LABEL: "node.n1"})


def test_a_wish_that_is_overruled_is_written_once_at_most(http: HttpClient) -> None:
    """The real server notes the first time who wished it."""
    name = fresh()
    http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    first, second = (patch(MERGE_PATCH)(http, name, {"labels": {LABEL: "node.n2"}}) for _ in range(2))
    assert (second.version, second.labels) == (first.version, {LABEL: "node.n1"})
