"""Who is evicted next from a node that is being retired: what keeps each pod here, each with a scene in which it alone decides."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain import empty
from sidecar.drain.empty import OVERDUE, Candidate, Hold, Memory, Replicas, keeping_off, objection, refused_by_budget
from sidecar.drain.policy import CLAIM, unread_key
from sidecar.drain.snapshot import InFlight, Own
from sidecar.drain.things import classify
from sidecar.drain.words import Reason
from sidecar.model import names
from sidecar.model.nodes import Pod, Toleration
from sidecar.model.objects import Owner
from tests.harness.drain import samples
from tests.harness.drain.samples import DRIVER, stamp

TAINTED = samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
TOLERANT = Toleration("", "Exists", "", "")
NOTHING = Memory({}, frozenset(), {})
R = Reason


def evictable(name: str = "db-0", **changes: Any) -> Pod:
    """It has nothing of this driver but an inline volume."""
    return samples.pod(name, **{"inline": (DRIVER,)} | changes)


def found(*pods: Pod, memory: Memory = NOTHING, ours: Iterable[str] = (), **changes: Any) -> tuple[list[Candidate], list[Hold]]:
    snapshot = samples.snapshot(**{"node": TAINTED, "pods": pods} | changes)
    return empty.candidates(snapshot, classify(snapshot), memory, ours=frozenset(ours))


def names_of(*pods: Pod, **changes: Any) -> list[str]:
    return [each.pod.name for each in found(*pods, **changes)[0]]


def held(*pods: Pod, **changes: Any) -> Reason | None:
    candidates, holds = found(*pods, **changes)
    assert not (candidates and holds)
    return holds[0].reason if holds else None


def bound(policy: str | None = None, *, gib: float = 10, number: int = 0, **changes: Any) -> dict[str, Any]:
    """What a snapshot has where a pod uses data-NUMBER."""
    volume = samples.volume(f"pv-{number}", f"data-{number}", gib=gib)
    return {"volumes": (volume,), "claims": (samples.claim(f"data-{number}", policy=policy, gib=gib, **changes),)}


USER = samples.pod("db-0", "data-0")
SCRATCH = samples.pod("db-0", "db-0-scratch", ephemeral=("db-0-scratch",))
OF_POD = Owner("v1", "Pod", "db-0", SCRATCH.uid, controller=True)
OF_IT = {"volumes": (samples.volume("pv-0", "db-0-scratch"),), "claims": (samples.claim("db-0-scratch", owner=OF_POD),)}
UNREAD = {"unread": frozenset({unread_key(CLAIM, "apps/data-0"), unread_key(CLAIM, "apps/x")})}
BY_CLASS = bound() | {"classes": [samples.class_(policy="Ignore")]}


@pytest.mark.parametrize(
    ("pod", "changes"),
    [
        pytest.param(evictable(), {}, id="an inline volume"),
        pytest.param(USER, bound("Ignore"), id="the policy of its volume is Ignore"),
        pytest.param(USER, BY_CLASS, id="that of its class is"),
        pytest.param(SCRATCH, OF_IT, id="a generic ephemeral volume"),
        pytest.param(evictable(), {"node": samples.node(unschedulable=True)}, id="a cordon keeps pods off before its taint is there"),
        pytest.param(evictable(ready=False), {}, id="it is not ready"),
        pytest.param(evictable(owner=samples.owner("ReplicaSet", "web")), {}, id="of a ReplicaSet"),
    ],
)
def test_a_pod_with_nothing_that_has_to_stay_may_go(pod: Pod, changes: Any) -> None:
    (candidate,), holds = found(pod, **changes)
    assert (candidate.pod, holds) == (pod, [])


@pytest.mark.parametrize(
    ("pod", "changes", "reason", "lasting"),
    [
        *(
            pytest.param(USER, bound(policy), R.VOLUME_IN_USE, True, id=f"the policy {policy}")
            for policy in (None, "Block", "AllowIdle", "Reprovision", "ignore", "Ignored")
        ),
        pytest.param(USER, bound(notes=((names.DRAIN_POLICY_REBOOT, "Ignore"),)), R.VOLUME_IN_USE, True, id="a policy for reboots alone"),
        pytest.param(
            USER,
            bound("Ignore") | {"volumes": (samples.volume("pv-0", "data-0", policy="Ignored"),)},
            R.VOLUME_IN_USE,
            True,
            id="contradicting words",
        ),
        pytest.param(
            USER,
            BY_CLASS | UNREAD,
            R.VOLUME_IN_USE,
            True,
            id="a claim that was not read",
        ),
        pytest.param(
            USER, bound("Reprovision") | {"own": Own(reprovisions=True)}, R.REPROVISION_PENDING, False, id="it is to be made anew"
        ),
        pytest.param(
            samples.pod("db-0", "data-0", "data-1"),
            {key: (*bound("Reprovision")[key], *bound("Block", number=1)[key]) for key in ("volumes", "claims")}
            | {"own": Own(reprovisions=True)},
            R.VOLUME_IN_USE,
            True,
            id="another claim of it stays",
        ),
        pytest.param(
            SCRATCH,
            {**OF_IT, "claims": (samples.claim("db-0-scratch"),)},
            R.VOLUME_IN_USE,
            True,
            id="the claim of an ephemeral volume that nobody owns",
        ),
        pytest.param(
            evictable(claims=("more",)),
            {"in_flight": (InFlight(samples.claim("more")),)},
            R.PROVISIONING_IN_FLIGHT,
            False,
            id="a volume is being made for it",
        ),
        pytest.param(
            evictable(claims=("x",)),
            UNREAD,
            R.NOT_KNOWN,
            False,
            id="one of its claims was not read",
        ),
        pytest.param(evictable(owner=None), {}, R.BARE_POD, True, id="nobody makes it again"),
        pytest.param(evictable(), {"node": samples.node()}, R.WOULD_COME_BACK, True, id="nothing keeps pods off"),
        pytest.param(
            evictable(),
            {"node": samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire", "PreferNoSchedule"),))},
            R.WOULD_COME_BACK,
            True,
            id="a taint that keeps nobody off",
        ),
        pytest.param(evictable(tolerations=(TOLERANT,)), {}, R.WOULD_COME_BACK, True, id="it tolerates it"),
        pytest.param(
            evictable(tolerations=(Toleration(names.CORDON_TAINT, "Exists", "", ""),)),
            {"node": samples.node(unschedulable=True)},
            R.WOULD_COME_BACK,
            True,
            id="it tolerates the cordon",
        ),
        pytest.param(evictable(), {"ignorance": ("claims could not be read",)}, R.NOT_KNOWN, False, id="something could not be read"),
        pytest.param(evictable(), {"own": Own(not_listed="it does not answer")}, R.NOT_KNOWN, False, id="the driver has not listed"),
        pytest.param(evictable(), {"node": None}, R.NOT_KNOWN, False, id="there is no Node"),
        pytest.param(evictable(), {"node": replace(TAINTED, ready="Unknown")}, R.SOURCE_OFFLINE, False, id="the node does not answer"),
        pytest.param(evictable(), {"node": replace(TAINTED, ready="False")}, R.SOURCE_OFFLINE, False, id="the node is not ready"),
    ],
)
def test_what_keeps_a_pod_here(pod: Pod, changes: Any, reason: Reason, lasting: bool) -> None:
    candidates, (hold,) = found(pod, **changes)
    assert (candidates, hold.reason, hold.lasting, bool(hold.why)) == ([], reason, lasting, True)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(samples.pod("web", local=("emptyDir",)), id="it has no volume of ours"),
        pytest.param(evictable(static=True), id="a static pod"),
        pytest.param(evictable(owner=samples.owner("DaemonSet", "agent")), id="of a DaemonSet"),
        pytest.param(evictable(node="n2"), id="on another node"),
        pytest.param(evictable(phase="Succeeded"), id="it has ended"),
        pytest.param(evictable("own"), id="our own"),
        pytest.param(evictable(deleting_since=stamp(400)), id="it has been leaving for more than five minutes"),
    ],
)
def test_who_is_never_evicted_is_not_named_either(pod: Pod) -> None:
    assert found(pod, ours=("apps/own",)) == ([], [])


@pytest.mark.parametrize(
    ("other", "memory"),
    [
        pytest.param(evictable("web-0", deleting_since=stamp()), NOTHING, id="it was asked to end"),
        pytest.param(evictable("web-0"), replace(NOTHING, leaving=frozenset({"uid-apps-web-0"})), id="it was evicted a moment ago"),
    ],
)
def test_while_a_pod_leaves_nobody_else_goes(other: Pod, memory: Memory) -> None:
    candidates, (hold,) = found(evictable(), other, memory=memory)
    assert (candidates, hold.reason, hold.pod, hold.lasting) == ([], Reason.POD_TERMINATING, "apps/web-0", False)


def test_drain_B9_a_pod_that_leaves_for_more_than_five_minutes_holds_nobody_else() -> None:
    for since, goes in ((OVERDUE - 1, False), (OVERDUE, True)):
        candidates, _ = found(evictable(), evictable("web-0", deleting_since=stamp(since)))
        assert bool(candidates) is goes, since


def test_one_that_is_held_does_not_hold_up_another() -> None:
    hold = Hold(Reason.PDB_BLOCKED, "apps/db-0", "the budget")
    candidates, holds = found(evictable(), evictable("web-0"), memory=replace(NOTHING, held={"uid-apps-db-0": hold}))
    assert ([each.pod.name for each in candidates], holds) == (["web-0"], [hold])


def test_a_pod_that_was_put_here_after_another_of_its_workload_was_evicted_would_come_back() -> None:
    evicted = replace(NOTHING, evicted={"apps/uid-db": frozenset({"uid-apps-db-1"})})
    assert held(evictable(), memory=evicted) is Reason.WOULD_COME_BACK
    assert names_of(evictable("db-1"), memory=evicted) == ["db-1"]
    assert names_of(evictable(namespace="evil"), memory=evicted) == ["db-0"], "whoever makes a pod writes what he likes as its owner"


def test_those_that_are_ready_go_first_then_those_with_the_fewest_bytes() -> None:
    pods = [samples.pod(f"p-{number}", f"data-{number}") for number in range(3)]
    volumes = [bound("Ignore", gib=gib, number=number) for number, gib in {0: 30, 1: 20, 2: 10}.items()]
    there = {"volumes": tuple(each["volumes"][0] for each in volumes), "claims": [each["claims"][0] for each in volumes]}
    assert names_of(*pods, **there) == ["p-2", "p-1", "p-0"]
    assert names_of(*pods[:2], replace(pods[2], ready=False), **there) == ["p-1", "p-0", "p-2"]


def test_what_passes_by_itself_is_told_before_what_a_person_has_to_change() -> None:
    flight = InFlight(samples.claim("more"))
    _, holds = found(evictable("a", owner=None), evictable("b", claims=("more",)), in_flight=(flight,))
    assert [hold.pod for hold in holds] == ["apps/b", "apps/a"]


def test_what_keeps_pods_off() -> None:
    assert [str(taint) for taint in keeping_off(TAINTED)] == [f"{names.EVACUATE_TAINT}=retire:NoSchedule"]
    cordoned = samples.node(unschedulable=True, taints=(samples.taint(names.CORDON_TAINT),))
    assert len(keeping_off(cordoned)) == len(keeping_off(samples.node(unschedulable=True))) == 1


# --- by what the API server says right before -------------------------------------------------------------------------


def may_go(*others: Pod, pod: Pod | None = None, **changes: Any) -> Reason | None:
    mine = pod or evictable()
    hold = objection(Candidate(mine, ()), replace(Replicas((mine, *others), 1, (), needs_budget=False), **changes))
    return hold.reason if hold else None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({}, None, id="ready"),
        pytest.param({"ready": False}, R.REPLICA_NOT_READY, id="not ready"),
        pytest.param({"deleting_since": stamp()}, R.REPLICA_NOT_READY, id="ending"),
        pytest.param({"node": "", "phase": "Pending"}, R.REPLICA_NOT_READY, id="without a node"),
        pytest.param({"phase": "Failed", "ready": False}, None, id="ended"),
        pytest.param({"owner": samples.owner(name="web"), "ready": False}, None, id="of another workload"),
    ],
)
def test_while_another_replica_is_away_none_is_evicted(changes: Any, reason: Reason | None) -> None:
    assert may_go(samples.pod("db-1", **{"node": "n2"} | changes)) is reason


def test_a_replica_that_is_not_made_again_yet_counts_as_away() -> None:
    other = samples.pod("db-1", node="n2")
    assert may_go(other, wanted=3) is Reason.REPLICA_NOT_READY
    assert may_go(other, wanted=2) is may_go(other, wanted=1) is None


def test_a_workload_of_which_another_node_makes_a_replica_anew_waits() -> None:
    assert may_go(taken_by="n2") is Reason.WAITING_FOR_SLOT


def test_a_pod_that_the_api_server_does_not_have_any_more_is_not_evicted() -> None:
    assert may_go(pods=()) is may_go(pods=(evictable(uid="uid-another"),)) is Reason.NOT_KNOWN


def test_where_several_nodes_are_emptied_a_workload_with_other_replicas_needs_a_budget() -> None:
    other = samples.pod("db-1", node="n2")
    assert may_go(other, needs_budget=True) is Reason.PDB_BLOCKED
    assert may_go(other, needs_budget=True, budgets=(samples.budget(),)) is None
    assert may_go(other, needs_budget=True, budgets=(samples.budget(allowed=2),)) is Reason.PDB_BLOCKED, "two nodes would take one each"
    assert may_go(needs_budget=True) is None, "it has no other replica"


def test_where_nobody_knows_how_many_replicas_there_are_to_be_a_workload_with_others_needs_a_budget() -> None:
    """Operators' own kinds: the first that was evicted may not be made again yet, and nothing would show it."""
    other = samples.pod("db-1", node="n2")
    assert may_go(other, wanted=None) is Reason.PDB_BLOCKED
    assert may_go(other, wanted=None, budgets=(samples.budget(),)) is None
    assert may_go(wanted=None) is None, "it has no other replica"


def test_both_replica_sets_of_a_deployment_that_is_rolled_out_are_one_workload() -> None:
    def of(pod_hash: str, name: str, **more: Any) -> Pod:
        return samples.pod(name, owner=samples.owner("ReplicaSet", f"web-{pod_hash}"), labels={"pod-template-hash": pod_hash}, **more)

    mine = of("old", "a")
    assert may_go(of("new", "b", ready=False), pod=mine) is Reason.REPLICA_NOT_READY
    assert may_go(of("new", "b"), pod=mine) is None


@pytest.mark.parametrize(
    ("budgets", "pod", "reason", "lasting"),
    [
        pytest.param((samples.budget(allowed=1),), {}, None, False, id="it allows one"),
        pytest.param((samples.budget(allowed=0),), {}, R.PDB_BLOCKED, False, id="it allows none"),
        pytest.param((samples.budget(observed=False),), {}, R.PDB_BLOCKED, False, id="nobody has counted yet"),
        pytest.param((samples.budget("a"), samples.budget("b")), {}, R.PDB_BLOCKED, True, id="two budgets"),
        pytest.param((samples.budget(allowed=0, labels={"app": "web"}),), {}, None, False, id="of other pods"),
        pytest.param((samples.budget(allowed=0),), {"phase": "Pending"}, None, False, id="of a pod that does not run yet"),
        pytest.param((samples.budget(allowed=0, frees_unready=True),), {"ready": False}, None, False, id="of one that is not ready"),
        pytest.param((samples.budget(allowed=0, frees_unready=True),), {}, R.PDB_BLOCKED, False, id="but of one that is ready"),
    ],
)
def test_what_budgets_say(budgets: Any, pod: Any, reason: Reason | None, lasting: bool) -> None:
    hold = refused_by_budget(evictable(**pod), budgets, needs_one="")
    assert (hold.reason, hold.lasting) == (reason, lasting) if hold else reason is None
