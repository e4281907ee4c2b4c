"""The policy is edited or loses its binding, what a policy with other words does, and those who apply manifests under it."""

import itertools

from hack.sim.cluster import claim_policy
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names
from tests.contract.claim_policy import BINDINGS, CLAIMS, LABEL, NODE, POLICIES, await_force, claim_with, in_force, install, probe, remove
from tests.contract.http_client import APPLY_PATCH, Answer, HttpClient

_numbers = itertools.count(1)
OWNERLESS = "a label that nobody owns is in no entry of managedFields, so no applier takes it away"


def fresh() -> str:
    return f"policy-{next(_numbers)}"


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
    """So that whoever compares what is stored with the component's file finds it equal."""
    defaults = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    with in_force(http):
        spec = http.send("GET", f"{POLICIES}/{names.CLAIM_POLICY}").body["spec"]
        matched = {key: value for key, value in spec["matchConstraints"].items() if defaults.get(key) != value}
        assert spec | {"matchConstraints": matched} == claim_policy.written()[0]["spec"]
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
