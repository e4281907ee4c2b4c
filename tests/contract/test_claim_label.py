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


def test_what_a_claim_says(http: HttpClient) -> None:
    for what, (notes, volume, label) in SAID.items():
        made = http.send("POST", CLAIMS, claim_with(fresh(), notes, volume=volume, labels=OWN))
        assert made.labels == OWN | {LABEL: label}, what


def test_an_open_claim_is_in_the_shard_of_its_uid(http: HttpClient) -> None:
    for asked in (ASKED, ASKED_BETA):
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
NOTES: list[dict[str, str]] = [{ASKED: "d"}, {ASKED_BETA: "d"}, {NODE: "n1"}, {NODE: "n1", ASKED: "d"}]
WISHES: list[dict[str, str]] = [{LABEL: "node.elsewhere"}, {LABEL: "made-by-hand"}, {LABEL: ""}, OWN]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_by_whichever_write(http: HttpClient, write: Write) -> None:
    for notes in NOTES:
        name = fresh()
        http.send("POST", CLAIMS, claim_with(name, labels=OWN))
        written = write(http, name, {"annotations": notes, "labels": OWN})
        assert written.labels == OWN | {LABEL: should_be(written.body)}, notes
        assert written.labels[LABEL] != "waiting", notes
        assert http.send("GET", f"{CLAIMS}/{name}").body == written.body


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_whoever_else_sets_the_label_is_overruled(http: HttpClient, write: Write) -> None:
    for wish in WISHES:
        name = fresh()
        http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
        written = write(http, name, {"labels": wish, "annotations": {NODE: "n1"}})
        assert written.labels == wish | {LABEL: "node.n1"}, wish


def test_whoever_takes_all_labels_away_leaves_this_one(http: HttpClient) -> None:
    for write in (put(), put_blindly, patch(MERGE_PATCH), patch(STRATEGIC_MERGE_PATCH)):
        name = fresh()
        http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}, labels=OWN))
        assert write(http, name, {"labels": None, "annotations": {NODE: "n1"}}).labels == {LABEL: "node.n1"}


def test_a_claim_is_made_with_the_right_label_whatever_its_maker_wishes(http: HttpClient) -> None:
    """Also by a value that no label may have."""
    for labels in ({LABEL: "node.n2"}, {LABEL: "x" * 63}, {LABEL: "not a value"}, None, {}):
        assert http.send("POST", CLAIMS, claim_with(fresh(), {NODE: "n1"}, labels=labels)).labels == {LABEL: "node.n1"}, labels


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


# --- those who select by it. How selections are watched is in `test_watch` ------------------------------------------------


def now(http: HttpClient) -> str:
    return str(http.send("GET", CLAIMS, limit="1").body["metadata"]["resourceVersion"])


def told(events: list[Json], name: str) -> list[tuple[str, str]]:
    """Type and label of each event about this claim."""
    about = [event for event in events if event["object"]["metadata"].get("name") == name]
    return [(event["type"], event["object"]["metadata"]["labels"][LABEL]) for event in about]


def test_a_claim_is_heard_by_its_node_alone_and_leaves_it_for_the_next(http: HttpClient) -> None:
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    for notes in ({NODE: "n1"}, {ASKED: "d"}, {NODE: "n2"}):
        patch(MERGE_PATCH)(http, name, {"annotations": notes})
    patch(MERGE_PATCH)(http, name, {"labels": {LABEL: "node.n1"}})
    heard = {node: told(http.watch(CLAIMS, since, labelSelector=f"{LABEL}=node.{node}"), name) for node in ("n1", "n2", "n3")}
    assert heard["n1"] == [("ADDED", "node.n1"), ("MODIFIED", "node.n1"), ("DELETED", "node.n1")]
    assert heard["n2"][0] == ("ADDED", "node.n2") and {kind for kind, _ in heard["n2"][1:]} <= {"MODIFIED"}
    assert heard["n3"] == []


def test_an_open_claim_that_is_taken_leaves_its_shard_as_it_was(http: HttpClient) -> None:
    """Its annotations do not say who has taken it. Who selects both, by one watch, hears a change and nothing of leaving."""
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    opened = patch(MERGE_PATCH)(http, name, {"annotations": {ASKED: "d"}})
    taken = patch(MERGE_PATCH)(http, name, {"annotations": {NODE: "n1"}})
    shard = opened.labels[LABEL]
    events = http.watch(CLAIMS, since, labelSelector=f"{LABEL}={shard}")
    born, left = (event for event in events if event["object"]["metadata"]["name"] == name)
    assert (born["type"], born["object"], left["type"]) == ("ADDED", opened.body, "DELETED")
    assert left["object"] == opened.body | {"metadata": opened.body["metadata"] | {"resourceVersion": taken.version}}
    both = told(http.watch(CLAIMS, since, labelSelector=f"{LABEL} in (node.n1,{shard})"), name)
    assert both == [("ADDED", shard), ("MODIFIED", "node.n1")]


def test_all_256_shards_in_one_selector(http: HttpClient) -> None:
    """They make 2,078 characters, and 2,608 in the address."""
    name, since = fresh(), now(http)
    http.send("POST", CLAIMS, claim_with(name))
    opened = patch(MERGE_PATCH)(http, name, {"annotations": {ASKED: "d"}})
    shards = f"{LABEL} in ({','.join(f'open.{shard:02x}' for shard in range(256))})"
    assert name in [item["metadata"]["name"] for item in http.send("GET", CLAIMS, labelSelector=shards).body["items"]]
    assert told(http.watch(CLAIMS, since, labelSelector=shards), name) == [("ADDED", opened.labels[LABEL])]
