"""The policy comes, goes and is edited: claims that were there before, what stays, what a policy with other words does."""

import itertools
from collections.abc import Callable

from hack.sim.cluster import claim_policy
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model import names
from tests.contract.claim_policy import BINDINGS, CLAIMS, LABEL, NODE, POLICIES, await_force, claim_with, in_force, install, probe, remove
from tests.contract.http_client import APPLY_PATCH, Answer, HttpClient

_numbers = itertools.count(1)
OWNERLESS = "a label that nobody owns is in no entry of managedFields, so no applier takes it away"


def fresh() -> str:
    return f"policy-{next(_numbers)}"


# --- claims that were there before ----------------------------------------------------------------------------------------


def _touch(content: str, body: object, subresource: str = "") -> Callable[[HttpClient, str], Answer]:
    return lambda http, name: http.send("PATCH", f"{CLAIMS}/{name}{subresource}", body, content=content)


def _put_back(http: HttpClient, name: str) -> Answer:
    return http.send("PUT", f"{CLAIMS}/{name}", http.send("GET", f"{CLAIMS}/{name}").body)


TOUCHES = {
    "an empty merge patch": _touch(MERGE_PATCH, {}),
    "an empty strategic patch": _touch(STRATEGIC_MERGE_PATCH, {}),
    "an empty json patch": _touch(JSON_PATCH, []),
    "an empty merge patch of the status": _touch(MERGE_PATCH, {}, "/status"),
    "what was read": _put_back,
    "a value of the label that is wrong": _touch(MERGE_PATCH, {"metadata": {"labels": {LABEL: "waiting"}}}),
}


def test_what_was_there_before_is_labelled_by_the_smallest_write(http: HttpClient) -> None:
    """And by none that is no write: an object that nobody touches stays as it is."""
    claims = {fresh(): touch for touch in TOUCHES.values()}
    before = {name: http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"})) for name in claims}
    lied = fresh()
    http.send("POST", CLAIMS, claim_with(lied, {NODE: "n1"}, labels={LABEL: "node.n2", "app": "db"}))
    with in_force(http):
        assert {http.send("GET", f"{CLAIMS}/{name}").version for name in claims} == {made.version for made in before.values()}
        for name, touch in claims.items():
            trial = http.send("PATCH", f"{CLAIMS}/{name}", {}, content=MERGE_PATCH, dryRun="All")
            assert trial.labels == {LABEL: "node.n1"}, "a dry run says what would become of it"
            touched = touch(http, name)
            assert touched.labels == {LABEL: "node.n1"}
            assert touched.body["spec"] == before[name].body["spec"]
        assert _touch(MERGE_PATCH, {})(http, lied).labels == {LABEL: "node.n1", "app": "db"}


# --- without it ------------------------------------------------------------------------------------------------------------


def test_when_the_policy_goes_labels_stay_and_lie(http: HttpClient) -> None:
    name = fresh()
    with in_force(http):
        http.send("POST", CLAIMS, claim_with(name, {NODE: "n1"}))
    moved = http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"annotations": {NODE: "n2"}}}, content=MERGE_PATCH)
    assert moved.labels == {LABEL: "node.n1"}
    gone = http.send("PATCH", f"{CLAIMS}/{name}", {"metadata": {"labels": {LABEL: None}}}, content=MERGE_PATCH)
    assert gone.labels == {}


def test_a_policy_without_its_binding_does_nothing(http: HttpClient) -> None:
    with in_force(http):
        http.send("DELETE", f"{BINDINGS}/{names.CLAIM_POLICY}")
        await_force(http, over=True)
        http.send("POST", BINDINGS, claim_policy.written()[1])
        await_force(http)


def test_a_policy_with_other_words_under_this_name_does_nothing_of_ours(http: HttpClient) -> None:
    """It does what it says, which the simulated server cannot know; neither gives the labels that this one would."""
    foreign = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{}}"}}
    install(http, mutations=[foreign])
    try:
        made = http.send("POST", CLAIMS, claim_with(fresh(), {NODE: "n1"}))
        assert made.labels == {}
        found = http.send("GET", f"{POLICIES}/{names.CLAIM_POLICY}").body
        ours = claim_policy.written()[0]["spec"]
        http.send("PUT", f"{POLICIES}/{names.CLAIM_POLICY}", found | {"spec": ours})
        await_force(http)
        edited = http.send("GET", f"{POLICIES}/{names.CLAIM_POLICY}").body
        http.send("PUT", f"{POLICIES}/{names.CLAIM_POLICY}", edited | {"spec": edited["spec"] | {"mutations": [foreign]}})
        await_force(http, over=True)
    finally:
        remove(http)


def test_the_server_adds_nothing_but_defaults_to_what_is_applied(http: HttpClient) -> None:
    """So that whoever compares what is stored with the component's file, as the simulated server does, finds it equal."""
    with in_force(http):
        stored = http.send("GET", f"{POLICIES}/{names.CLAIM_POLICY}").body
        assert claim_policy.is_ours(stored)
        assert http.send("GET", f"{BINDINGS}/{names.CLAIM_POLICY}").body["spec"] == claim_policy.written()[1]["spec"]
        assert probe(http) == {LABEL: "waiting"}


# --- those who apply manifests ----------------------------------------------------------------------------------------------

MANAGERS = ("argocd-controller", "kustomize-controller")


def _applied(http: HttpClient, name: str, manager: str, *, labels: dict[str, str] | None = None, **query: str) -> Answer:
    obj = claim_with(name, labels=labels or {"app": "db"})
    return http.send("PATCH", f"{CLAIMS}/{name}", obj, content=APPLY_PATCH, fieldManager=manager, force="true", **query)


def _as_compared(answer: Answer) -> object:
    """As those compare who apply: without versions and managers."""
    meta = {key: value for key, value in answer.body["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    return answer.body | {"metadata": meta}


def test_who_applies_manifests_sees_no_drift_and_takes_nothing_away(http: HttpClient) -> None:
    """One manager as Argo CD, one as Flux: both apply on the server's side, and compare a dry run with what is there."""
    name = fresh()
    with in_force(http):
        assert _applied(http, name, MANAGERS[0]).labels == {"app": "db", LABEL: "waiting"}
        bound = {"metadata": {"annotations": {NODE: "n1"}}}
        http.send("PATCH", f"{CLAIMS}/{name}", bound, content=MERGE_PATCH, fieldManager="kube-scheduler")
        for manager in (*MANAGERS, *MANAGERS):
            live = http.send("GET", f"{CLAIMS}/{name}")
            assert _as_compared(_applied(http, name, manager, dryRun="All")) == _as_compared(live)
            assert _as_compared(_applied(http, name, manager)) == _as_compared(live)
        live = http.send("GET", f"{CLAIMS}/{name}")
        assert live.labels == {"app": "db", LABEL: "node.n1"}
        assert LABEL not in str(live.body["metadata"]["managedFields"]), OWNERLESS
        settled = _applied(http, name, MANAGERS[0])
        assert settled.version == _applied(http, name, MANAGERS[0]).version, "and writes nothing"
