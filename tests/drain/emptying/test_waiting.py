"""Pods without a node whose ephemeral volume is on a node that is being retired: which of them are evicted, and which are left alone."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.emptying.decisions import Ask, EmptyingView, Evict, Finished, Hold
from sidecar.drain.emptying.rules import decide, in_words, unfinished
from sidecar.drain.facts.snapshot import InFlight, Snapshot
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.rules import May
from sidecar.model import names
from sidecar.model.nodes import Pod, Toleration
from sidecar.model.objects import Owner
from tests.harness.drain import samples
from tests.harness.drain.samples import CLASS, DRIVER, NAMESPACE, stamp

TAINTED = samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
SCRATCH = "db-0-scratch"


def waiting(**changes: Any) -> Pod:
    return samples.pod("db-0", SCRATCH, **{"ephemeral": (SCRATCH,), "node": "", "phase": "Pending", "ready": False} | changes)


def scene(pod: Pod, *, of: str = "", **changes: Any) -> Snapshot:
    """Its volume was made here. `of` is the uid of the pod that owns the claim."""
    owner = Owner("v1", "Pod", "db-0", of or pod.uid, controller=True)
    base = {
        "node": TAINTED,
        "claimants": (pod,),
        "volumes": (samples.volume("pv-0", SCRATCH),),
        "claims": (samples.claim(SCRATCH, owner=owner),),
    }
    return samples.snapshot(**base | changes)


def told(snapshot: Snapshot, *others: Pod, pod: Pod | None = None, version: str = "7", **changes: Any) -> EmptyingView:
    """The API server tells of these pods, and of the waiting one as it is in the snapshot unless `pod` says otherwise."""
    first = pod or snapshot.claimants[0]
    base = EmptyingView(snapshot, {NAMESPACE: (first, *snapshot.pods, *others)}, versions={first.uid: version})
    return replace(base, **changes)


def held_by(decision: Any) -> Hindrance | None:
    return decision.hindrance if isinstance(decision, Hold) else None


def test_the_api_server_is_asked_first_whether_it_still_has_no_node() -> None:
    pod = waiting()
    decision = decide(EmptyingView(scene(pod)))
    assert isinstance(decision, Ask)
    assert (decision.namespace, decision.pod, decision.waits) == (NAMESPACE, "apps/db-0", True)
    assert "if it has none by now" in in_words(decision)
    assert unfinished(scene(pod)), "the node is not empty as long as somebody waits for it"


def test_it_is_evicted_in_the_version_in_which_it_has_no_node() -> None:
    pod = waiting()
    decision = decide(told(scene(pod)))
    assert isinstance(decision, Evict)
    assert (decision.pod, decision.waits, decision.volumes) == (May(NAMESPACE, "db-0", pod.uid, "7"), True, ("pv-0",))
    assert "waits for a node" in in_words(decision)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param((), id="a set of which nothing else is there"),
        pytest.param((samples.pod("db-1", node="n2", ready=False),), id="another one is not ready"),
        pytest.param((samples.pod("db-1", node="n2", deleting_since=stamp()),), id="another one is leaving"),
    ],
)
@pytest.mark.parametrize("budgets", [(), (samples.budget(allowed=0),), (samples.budget("a"), samples.budget("b"))])
def test_nothing_is_lacking_when_it_goes_so_neither_replicas_nor_budgets_keep_it(others: tuple[Pod, ...], budgets: Any) -> None:
    assert isinstance(decide(told(scene(waiting(), budgets=budgets), *others)), Evict)


def test_it_goes_before_those_that_run_whose_set_may_wait_for_it() -> None:
    first, second = waiting(), samples.pod("db-1", inline=(DRIVER,))
    decision = decide(told(scene(first, pods=(second,))))
    assert isinstance(decision, Evict)
    assert decision.pod.name == "db-0"
    view = told(scene(first, pods=(second,)), failures={first.uid: 1})
    assert held_by(decide(replace(view, paused={first.uid: "refused"}))) is Hindrance.REPLICA_NOT_READY


@pytest.mark.parametrize(
    ("now", "version"),
    [
        pytest.param({"node": samples.NODE}, "7", id="it has this node by now"),
        pytest.param({"node": "n2"}, "7", id="it has another one"),
        pytest.param({"uid": "uid-later"}, "7", id="another pod has its name"),
        pytest.param({}, "", id="its version was not told"),
        pytest.param({"deleting_since": stamp()}, "7", id="it is being deleted"),
    ],
)
def test_what_the_snapshot_says_is_not_enough(now: dict[str, Any], version: str) -> None:
    pod = waiting()
    assert held_by(decide(told(scene(pod), pod=replace(pod, **now), version=version))) is Hindrance.NOT_KNOWN


@pytest.mark.parametrize(
    ("changes", "hindrance"),
    [
        pytest.param({"tolerations": (Toleration("", "Exists", "", ""),)}, Hindrance.WOULD_COME_BACK, id="it will run here"),
        pytest.param({"owner": None}, Hindrance.BARE_POD, id="nobody makes it again"),
    ],
)
def test_which_one_stays_for_a_reason_that_is_told(changes: dict[str, Any], hindrance: Hindrance) -> None:
    assert held_by(decide(told(scene(waiting(**changes))))) is hindrance


def test_while_nothing_keeps_pods_off_the_node_it_may_run_here_yet() -> None:
    assert held_by(decide(told(scene(waiting(), node=samples.node())))) is Hindrance.WOULD_COME_BACK


def test_a_claim_that_another_pod_names_too_is_not_taken_away_under_it() -> None:
    other = samples.pod("thief", SCRATCH, node="")
    assert held_by(decide(told(scene(waiting(), claimants=(waiting(), other))))) is Hindrance.CLAIM_IN_USE
    here = samples.pod("thief", SCRATCH)
    assert held_by(decide(told(scene(waiting(), pods=(here,)), here, sizes={"apps/uid-db": None}))) is not None


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(scene(waiting(), of="uid-other"), id="the claim is another pod's"),
        pytest.param(scene(waiting(), claims=(samples.claim(SCRATCH),)), id="nobody owns the claim"),
        pytest.param(scene(waiting(ephemeral=())), id="it was not asked for as an ephemeral volume"),
        pytest.param(scene(waiting(node="n2")), id="it is on another node"),
        pytest.param(scene(waiting(owner=samples.owner("DaemonSet"))), id="a DaemonSet would make it again here"),
        pytest.param(scene(waiting(deleting_since=stamp())), id="it is being deleted"),
        pytest.param(scene(waiting(phase="Failed")), id="it has ended"),
        pytest.param(scene(waiting(), shared_with={"pv-0": ("n2",)}), id="another node has the volume too"),
        pytest.param(scene(waiting(), volumes=()), id="its volume is elsewhere"),
    ],
)
def test_who_is_none_of_those(snapshot: Snapshot) -> None:
    decision = decide(told(snapshot, sizes={"apps/uid-db": None}))
    assert not isinstance(decision, Evict | Ask), decision


@pytest.mark.parametrize("policy", ["Ignore", "Reprovision", None])
def test_one_that_another_volume_keeps_here_is_left_to_whoever_gives_that_up(policy: str | None) -> None:
    """The next pod would wait for it too."""
    pod = waiting(claims=(SCRATCH, "data-0"))
    claims = (*scene(pod).claims.values(), samples.claim("data-0", policy=policy))
    volumes = (*scene(pod).volumes, samples.volume("pv-1", "data-0"))
    assert isinstance(decide(told(scene(pod, volumes=volumes, claims=claims))), Finished)


def test_one_whose_other_volume_is_to_be_made_anew_goes_first_and_the_next_pod_waits_for_that_one_alone() -> None:
    """Otherwise its data would be deleted, and it would go on waiting for its ephemeral volume."""
    pod = waiting(claims=(SCRATCH, "data-0"))
    claims = (*scene(pod).claims.values(), samples.claim("data-0", policy="Reprovision"))
    volumes = (*scene(pod).volumes, samples.volume("pv-1", "data-0"))
    decision = decide(told(scene(pod, volumes=volumes, claims=claims), reprovisions=True))
    assert isinstance(decision, Evict)
    assert decision.volumes == ("pv-0",)


def test_while_another_volume_is_being_made_for_it_here_it_is_waited_for() -> None:
    pod = waiting(claims=(SCRATCH, "db-0-more"), ephemeral=(SCRATCH, "db-0-more"))
    flight = InFlight("uid-flight", NAMESPACE, "db-0-more", CLASS, 1)
    assert held_by(decide(told(scene(pod, in_flight=(flight,))))) is Hindrance.PROVISIONING_IN_FLIGHT


def test_it_is_not_evicted_again_and_again_where_somebody_makes_volumes_here_all_the_same() -> None:
    view, other = scene(waiting()), samples.pod("db-1", node="n2")
    assert isinstance(decide(told(view, other, waiting_evicted={"apps/uid-db": 1})), Evict)
    assert held_by(decide(told(view, other, waiting_evicted={"apps/uid-db": 2}))) is Hindrance.WOULD_COME_BACK


@pytest.mark.parametrize(("evicted", "namespace", "first"), [(9, NAMESPACE, "db-0"), (10, NAMESPACE, "web-0"), (10, "apps-2", "db-0")])
def test_a_tenant_who_makes_such_pods_again_and_again_under_other_owners_comes_last(evicted: int, namespace: str, first: str) -> None:
    runs = samples.pod("web-0", inline=(DRIVER,), owner=samples.owner("StatefulSet", "web"))
    view = told(scene(waiting(), pods=(runs,)), sizes={f"{NAMESPACE}/{runs.owner.uid}": 1} if runs.owner else {})
    decision = decide(replace(view, waiting_evicted={f"{namespace}/uid-{number}": 1 for number in range(evicted)}))
    assert isinstance(decision, Evict)
    assert decision.pod.name == first


def test_one_that_was_evicted_a_moment_ago_is_not_asked_about_again() -> None:
    assert isinstance(decide(EmptyingView(scene(waiting()), leaving={waiting().uid})), Finished)


def test_what_could_not_be_asked_about_keeps_it() -> None:
    view = EmptyingView(scene(waiting()), unread={NAMESPACE: "no answer"})
    assert held_by(decide(view)) is Hindrance.NOT_KNOWN
