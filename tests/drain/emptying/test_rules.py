"""Who is evicted next from a node that is being retired: the guards one by one, each with a scene in which it alone decides."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sidecar.drain.emptying.decisions import Ask, AskController, EmptyingView, Evict, Finished, Hold, workload_of
from sidecar.drain.emptying.rivals import Rivals
from sidecar.drain.emptying.rules import decide, in_words
from sidecar.drain.facts.snapshot import CLAIM, InFlight, Snapshot, unread_key
from sidecar.drain.vocabulary import HINDRANCES, Hindrance
from sidecar.model import names
from sidecar.model.nodes import Pod, Toleration
from sidecar.model.objects import Owner
from tests.harness.drain import samples
from tests.harness.drain.samples import DRIVER, NAMESPACE, stamp

TAINTED = samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
TOLERANT = Toleration("", "Exists", "", "")


def evictable(name: str = "db-0", **changes: Any) -> Pod:
    """It has nothing of this driver but an inline volume."""
    return samples.pod(name, **{"inline": (DRIVER,)} | changes)


def scene(*pods: Pod, **changes: Any) -> Snapshot:
    return samples.snapshot(**{"node": TAINTED, "pods": pods} | changes)


def view(snapshot: Snapshot, *, elsewhere: Iterable[Pod] = (), **changes: Any) -> EmptyingView:
    """The API server tells the same as the snapshot, and of these pods besides."""
    everybody = (*snapshot.pods, *elsewhere)
    peers = {namespace: tuple(pod for pod in everybody if pod.namespace == namespace) for namespace in {pod.namespace for pod in everybody}}
    nobody_says = {workload_of(pod): None for pod in everybody}
    return replace(EmptyingView(snapshot, peers, nobody_says), **changes)


def next_of(*pods: Pod, elsewhere: Iterable[Pod] = (), **changes: Any) -> Any:
    return decide(view(scene(*pods, **changes), elsewhere=elsewhere))


def held_by(decision: Any) -> Hindrance | None:
    return decision.hindrance if isinstance(decision, Hold) else None


def bound(policy: str | None = None, *, gib: float = 10, number: int = 0, **changes: Any) -> dict[str, Any]:
    """What a snapshot has where db-NUMBER uses data-NUMBER."""
    volume = samples.volume(f"pv-{number}", f"data-{number}", gib=gib)
    return {"volumes": (volume,), "claims": (samples.claim(f"data-{number}", policy=policy, gib=gib, **changes),)}


# --- who may go -------------------------------------------------------------------------------------------------------


def test_a_pod_with_nothing_that_lasts_is_evicted_by_its_uid() -> None:
    pod = evictable()
    decision = next_of(pod)
    assert isinstance(decision, Evict)
    assert (decision.pod.uid, decision.pod.full_name, decision.workload, decision.replicas) == (pod.uid, "apps/db-0", "apps/uid-db", 1)


def test_a_pod_without_a_volume_of_ours_is_a_drainers_business() -> None:
    assert isinstance(next_of(samples.pod("web", local=("emptyDir",))), Finished)


def test_a_volume_that_may_not_be_lost_keeps_its_pod() -> None:
    for policy in [None, "Block", "AllowIdle", "Reprovision", "Migrate", "ignore", "Ignored"]:
        assert held_by(next_of(samples.pod("db-0", "data-0"), **bound(policy))) is Hindrance.DATA_STAYS


def test_a_replica_that_this_sidecar_makes_anew_is_not_told_to_be_given_up() -> None:
    """Whoever reads that its claim is to be deleted, or annotated with Ignore, would destroy what is about to be done safely."""
    pod = samples.pod("db-0", "data-0")
    told = next_of(pod, **bound("Reprovision"), reprovisions=True)
    assert held_by(told) is Hindrance.REPROVISION_PENDING
    assert "Ignore" not in in_words(told) and "delete" not in in_words(told)
    assert held_by(next_of(pod, **bound("Block"), reprovisions=True)) is Hindrance.DATA_STAYS
    two = samples.pod("db-0", "data-0", "data-1")
    both = {key: (*bound("Reprovision")[key], *bound("Block", number=1)[key]) for key in ("volumes", "claims")}
    assert held_by(next_of(two, **both, reprovisions=True)) is Hindrance.DATA_STAYS, "another claim of it stays"


def test_a_volume_whose_policy_is_ignore_may_leave() -> None:
    decision = next_of(samples.pod("db-0", "data-0"), **bound("Ignore"))
    assert isinstance(decision, Evict)
    assert decision.volumes == ("pv-0",)


def test_a_policy_for_reboots_alone_lets_nothing_leave() -> None:
    notes = ((names.DRAIN_POLICY_REBOOT, "Ignore"),)
    assert held_by(next_of(samples.pod("db-0", "data-0"), **bound(notes=notes))) is Hindrance.DATA_STAYS


def test_contradicting_or_unread_policies_let_nothing_leave() -> None:
    pod, held = samples.pod("db-0", "data-0"), bound("Ignore")
    contradicted = held | {"volumes": (samples.volume("pv-0", "data-0", policy="Ignored"),)}
    assert held_by(next_of(pod, **contradicted)) is Hindrance.DATA_STAYS
    by_class = bound() | {"classes": [samples.class_(policy="Ignore")]}
    assert isinstance(next_of(pod, **by_class), Evict)
    assert held_by(next_of(pod, **by_class, unread=frozenset({unread_key(CLAIM, "apps/data-0")}))) is Hindrance.DATA_STAYS


def test_a_generic_ephemeral_volume_goes_with_its_pod() -> None:
    pod = samples.pod("db-0", "db-0-scratch", ephemeral=("db-0-scratch",))
    owner = Owner("v1", "Pod", "db-0", pod.uid, controller=True)
    volume = samples.volume("pv-0", "db-0-scratch")
    assert isinstance(next_of(pod, volumes=(volume,), claims=(samples.claim("db-0-scratch", owner=owner),)), Evict)
    assert held_by(next_of(pod, volumes=(volume,), claims=(samples.claim("db-0-scratch"),))) is Hindrance.DATA_STAYS


def test_a_volume_that_is_being_made_is_waited_for() -> None:
    flight = InFlight("uid-apps-more", NAMESPACE, "more", samples.CLASS, 1)
    assert held_by(next_of(evictable(claims=("more",)), in_flight=(flight,))) is Hindrance.PROVISIONING_IN_FLIGHT


def test_who_is_never_evicted_is_not_named_either() -> None:
    for changes in [{"static": True}, {"owner": samples.owner("DaemonSet", "agent")}, {"node": "n2"}, {"phase": "Succeeded"}]:
        assert isinstance(next_of(evictable(**changes)), Finished)


def test_we_do_not_evict_ourselves() -> None:
    assert isinstance(decide(view(scene(evictable()), ours={"apps/db-0"})), Finished)


def test_a_pod_that_nobody_makes_again_is_not_deleted_for_good() -> None:
    assert held_by(next_of(evictable(owner=None))) is Hindrance.BARE_POD


# --- who would come back ----------------------------------------------------------------------------------------------
def test_where_nothing_keeps_pods_off_every_pod_would_come_back() -> None:
    for taints in [(), (samples.taint(names.EVACUATE_TAINT, "retire", "PreferNoSchedule"),)]:
        assert held_by(next_of(evictable(), node=samples.node(taints=taints))) is Hindrance.WOULD_COME_BACK
        assert "nothing keeps pods off" in next_of(evictable(), node=samples.node(taints=taints)).why


def test_a_cordon_keeps_pods_off_before_its_taint_is_there() -> None:
    assert isinstance(next_of(evictable(), node=samples.node(unschedulable=True)), Evict)
    tolerant = evictable(tolerations=(Toleration(names.CORDON_TAINT, "Exists", "", ""),))
    assert held_by(next_of(tolerant, node=samples.node(unschedulable=True))) is Hindrance.WOULD_COME_BACK


def test_a_pod_that_tolerates_all_of_it_would_come_back() -> None:
    assert held_by(next_of(evictable(tolerations=(TOLERANT,)))) is Hindrance.WOULD_COME_BACK


# --- one at a time ----------------------------------------------------------------------------------------------------


def test_while_another_replica_is_not_ready_none_is_evicted() -> None:
    for changes in [{"ready": False}, {"deleting_since": stamp()}, {"node": "", "phase": "Pending", "ready": False}]:
        other = samples.pod("db-1", **{"node": "n2"} | changes)
        decision = next_of(evictable(), elsewhere=[other])
        assert held_by(decision) is Hindrance.REPLICA_NOT_READY
        assert "apps/db-1" in decision.why


def test_replicas_of_other_workloads_and_those_that_have_ended_do_not_count() -> None:
    others = [samples.pod("web-0", owner=samples.owner(name="web"), ready=False), samples.pod("db-9", phase="Failed", ready=False)]
    assert isinstance(next_of(evictable(), elsewhere=others), Evict)


def test_a_replica_that_is_not_made_again_yet_counts_as_not_ready() -> None:
    snapshot = scene(evictable("db-1"))
    others = [samples.pod("db-0", node="n2")]
    assert held_by(decide(view(snapshot, elsewhere=others, expected={"apps/uid-db": 3}))) is Hindrance.REPLICA_NOT_READY
    assert isinstance(decide(view(snapshot, elsewhere=others, expected={"apps/uid-db": 2})), Evict)
    assert isinstance(decide(view(snapshot, elsewhere=others, expected={"apps/uid-web": 9})), Evict)


def test_while_an_eviction_is_open_no_other_pod_of_its_workload_is_evicted() -> None:
    """The one that was asked to go is asked again; a copy of the first request that arrives late does no harm then."""
    pods = evictable("db-0"), evictable("db-1")
    unanswered = {"apps/uid-db": pods[1].uid}
    decision = decide(view(scene(*pods), unanswered=unanswered))
    assert isinstance(decision, Evict) and decision.pod.uid == pods[1].uid
    assert held_by(decide(view(scene(pods[0]), elsewhere=[pods[1]], unanswered=unanswered))) is Hindrance.POD_LEAVING
    web = evictable("web-0", owner=samples.owner("StatefulSet", "web"))
    decision = decide(view(scene(pods[0], web), elsewhere=[pods[1]], unanswered=unanswered))
    assert isinstance(decision, Evict) and decision.pod.name == "web-0"


def test_soon_after_a_restart_replicas_on_one_node_wait_without_a_budget_of_one() -> None:
    """Which of them an earlier process has asked to go is forgotten."""
    pods = evictable("db-0"), evictable("db-1")
    assert held_by(decide(view(scene(*pods), in_doubt=True))) is Hindrance.POD_LEAVING
    assert isinstance(decide(view(scene(*pods))), Evict)
    assert isinstance(decide(view(scene(pods[0]), elsewhere=[samples.pod("db-1", node="n2")], in_doubt=True)), Evict)
    assert isinstance(decide(view(scene(*pods, budgets=(samples.budget(allowed=1),)), in_doubt=True)), Evict)


def test_a_workload_of_which_another_node_makes_a_replica_anew_waits_and_others_go_on() -> None:
    taken = Rivals((samples.NODE,), taken={names.reprovision("uid-db", samples.DRIVER): "n2"})
    decision = decide(view(scene(evictable()), rivals=taken))
    assert held_by(decision) is Hindrance.ANOTHER_NODE_FIRST
    assert isinstance(decision, Hold) and "n2" in decision.why
    web = evictable("web-0", owner=samples.owner("StatefulSet", "web"))
    decision = decide(view(scene(evictable(), web), rivals=taken))
    assert isinstance(decision, Evict) and decision.pod.name == "web-0"


def test_what_is_not_known_of_the_others_is_asked_for_first() -> None:
    assert decide(EmptyingView(scene(evictable()))) == Ask(
        NAMESPACE, "apps/db-0", "whether the other replicas of apps/db-0 are ready is not known yet"
    )


def test_pods_that_name_the_same_controller_in_two_namespaces_are_two_workloads() -> None:
    """Whoever makes a pod writes what he likes into its owner reference."""
    foreign = evictable("forged", namespace="evil")
    assert isinstance(next_of(evictable(), elsewhere=[replace(foreign, node="n2", ready=False)]), Evict)
    assert isinstance(decide(view(scene(evictable()), expected={"evil/uid-db": 50})), Evict)


def test_its_controller_is_asked_how_many_pods_there_should_be() -> None:
    """What this process remembers of an eviction is lost when it ends, and what was evicted may never be made again."""
    for kind in ["StatefulSet", "ReplicaSet"]:
        pod = evictable(owner=samples.owner(kind, "db"))
        assert decide(view(scene(pod), sizes={})) == AskController(
            NAMESPACE, samples.owner(kind, "db"), "apps/db-0", "whether the other replicas of apps/db-0 are ready is not known yet"
        )
        too_few = decide(view(scene(pod), sizes={"apps/uid-db": 2}))
        assert held_by(too_few) is Hindrance.REPLICA_NOT_READY
        assert too_few.why == f"{kind} db has 1 of 2 pods"
        assert isinstance(decide(view(scene(pod), sizes={"apps/uid-db": 1}, expected={"apps/uid-db": 3})), Evict), "it was made smaller"


def test_what_could_not_be_asked_about_waits_and_nobody_else() -> None:
    for about in ["apps", "apps/uid-db"]:
        other = evictable("web-0", namespace="web", owner=samples.owner(name="web"))
        unread = {about: "no answer"}
        assert held_by(decide(view(scene(evictable()), sizes={}, unread=unread))) is Hindrance.NOT_KNOWN
        decision = decide(view(scene(evictable(), other), unread=unread))
        assert isinstance(decision, Evict)
        assert (decision.pod.full_name, decision.passed) == ("web/web-0", {"apps/uid-db"})


# --- the order --------------------------------------------------------------------------------------------------------


def test_workloads_that_are_wholly_ready_come_first_then_the_fewest_bytes() -> None:
    owners = {number: samples.owner(name=f"set-{number}") for number in range(3)}
    pods = [samples.pod(f"p-{number}", f"data-{number}", owner=owners[number]) for number in range(3)]
    sizes = {0: 30, 1: 20, 2: 10}
    held = [bound("Ignore", gib=gib, number=number) for number, gib in sizes.items()]
    there = {"volumes": tuple(each["volumes"][0] for each in held), "claims": [each["claims"][0] for each in held]}
    assert next_of(*pods, **there).pod.name == "p-2"
    sick = [*pods[:2], replace(pods[2], ready=False)]
    assert next_of(*sick, **there).pod.name == "p-1"
    assert next_of(*(replace(pod, ready=False) for pod in pods), **there).pod.name == "p-2"


# --- what the server says ---------------------------------------------------------------------------------------------
def test_a_budget_that_refuses_is_not_asked() -> None:
    for budgets, hindrance in [
        ((samples.budget(allowed=0),), Hindrance.PDB_BLOCKED),
        ((samples.budget(observed=False),), Hindrance.PDB_BLOCKED),
        ((samples.budget("a"), samples.budget("b")), Hindrance.TWO_BUDGETS),
        ((samples.budget(allowed=1),), None),
        (None, None),
    ]:
        assert held_by(next_of(evictable(), budgets=budgets)) is hindrance


def test_one_that_is_held_does_not_hold_up_another() -> None:
    other = evictable("web-0", labels={}, owner=samples.owner(name="web"))
    decision = next_of(evictable(), other, budgets=(samples.budget(allowed=0),))
    assert decision.pod.name == "web-0"
    paused = decide(view(scene(evictable(), other), paused={"uid-apps-db-0": "forbidden"}))
    assert isinstance(paused, Evict) and paused.pod.name == "web-0"


# --- ignorance --------------------------------------------------------------------------------------------------------


def test_ignorance_is_never_a_yes() -> None:
    for changes, hindrance in [
        ({"ignorance": ("claims could not be read",)}, Hindrance.NOT_KNOWN),
        ({"not_listed": "the driver does not answer"}, Hindrance.NOT_KNOWN),
        ({"unread": frozenset({unread_key(CLAIM, "apps/x")})}, Hindrance.NOT_KNOWN),
        ({"node": replace(TAINTED, ready="Unknown")}, Hindrance.SOURCE_OFFLINE),
        ({"node": replace(TAINTED, ready="False")}, Hindrance.SOURCE_OFFLINE),
    ]:
        assert held_by(next_of(evictable(claims=("x",)), **changes)) is hindrance


def test_every_hindrance_is_explained() -> None:
    assert set(HINDRANCES) == set(Hindrance)
    assert all(meaning.says and meaning.remedy for meaning in HINDRANCES.values())


def test_a_pod_that_the_server_does_not_have_any_more_is_not_evicted() -> None:
    assert held_by(decide(replace(view(scene(evictable())), peers={NAMESPACE: ()}))) is Hindrance.NOT_KNOWN
