"""What one process remembers of its evictions, which of two emptied nodes goes first, and pods that wait for a node with a volume here."""

from dataclasses import replace
from itertools import permutations
from typing import Any

from sidecar.drain.emptying.decisions import Ask, EmptyingView, Evict, Hold
from sidecar.drain.emptying.pauses import Pauses
from sidecar.drain.emptying.rivals import SETTLED, Rivals
from sidecar.drain.emptying.rules import decide, in_words, unfinished
from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.answers import EVICTED, Answer, Result
from sidecar.eviction.rules import May
from sidecar.kube.api import CLAIMS, EVENTS
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, Toleration
from sidecar.model.objects import Owner
from tests.harness.drain import emptying, samples
from tests.harness.drain.emptying import Evictions, play, pods
from tests.harness.drain.samples import DRIVER, NAMESPACE, stamp
from tests.harness.drain.simulated import EVACUATE, STATE, Bench, all_of, change, node_of, wait

POD = samples.pod("db-0")
EVICT = Evict(May("apps", "db-0", POD.uid), "apps/uid-db", 3, frozenset({POD.uid}), (), "why")


def noted(answer: Answer) -> Pauses:
    pauses = Pauses()
    pauses.note(EVICT, answer, now=100.0)
    return pauses


def test_who_was_evicted_is_leaving_until_the_watch_no_longer_has_it() -> None:
    for result in [Result.EVICTED, Result.GONE, Result.REPLACED]:
        pauses = noted(EVICTED if result is Result.EVICTED else Answer(result))
        pauses.see([POD], now=1e6)
        assert pauses.leaving == {POD.uid}
        pauses.see([], now=101.0)
        assert pauses.leaving == frozenset()


def test_evictions_of_an_earlier_process_are_in_doubt_while_they_may_arrive() -> None:
    pauses = Pauses(restarted=True)
    assert pauses.in_doubt(50.0)
    pauses.see([POD], now=50.0)
    assert pauses.in_doubt(139.0)
    assert pauses.next_end(130.0) == 10.0
    assert not pauses.in_doubt(140.0)
    assert not Pauses().in_doubt(0.0)
    assert not pauses.for_another().in_doubt(60.0)


def test_who_may_have_been_evicted_is_leaving_for_a_while_and_nobody_else_is_tried() -> None:
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([POD], now=119.0)
    assert (pauses.leaving, pauses.for_all(119.0)) == ({POD.uid}, 1.0)
    pauses.see([POD], now=120.0)
    assert (pauses.leaving, pauses.for_all(120.0)) == (frozenset(), 0.0)


def test_an_unanswered_eviction_may_be_carried_out_while_its_pod_is_there() -> None:
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([POD], now=189.0)
    assert pauses.unanswered == {"apps/uid-db": POD.uid}
    assert pauses.next_end(189.0) == 1.0
    pauses.see([POD], now=190.0)
    assert pauses.unanswered == {}
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([], now=101.0)
    assert pauses.unanswered == {}


def test_what_is_said_of_one_pod_holds_up_no_other() -> None:
    for result in [Result.BUDGET, Result.TWO_BUDGETS, Result.NAMESPACE_ENDS, Result.CHANGED]:
        pauses = noted(Answer(result, "because", 5.0))
        assert (pauses.paused(104.0), pauses.for_all(104.0), pauses.leaving) == ({POD.uid: "because"}, 0.0, frozenset())
        assert pauses.paused(105.0) == {}


def test_what_is_said_of_us_holds_up_all() -> None:
    for result in [Result.FORBIDDEN, Result.SERVER_BUSY]:
        assert noted(Answer(result, "because", 20.0)).for_all(100.0) == 20.0


def test_a_workload_is_expected_to_have_as_many_pods_as_before_for_a_while() -> None:
    for answer in (EVICTED, Answer(Result.FAILED, "no answer", 20.0)):
        assert noted(answer).expected(699.0) == {"apps/uid-db": 3}
        assert noted(answer).expected(701.0) == {}
    assert noted(Answer(Result.BUDGET, "because", 5.0)).expected(101.0) == {}


def test_who_was_here_at_the_first_eviction_of_a_workload_is_remembered() -> None:
    pauses = noted(EVICTED)
    pauses.note(Evict(May("apps", "db-1", "later"), "apps/uid-db", 3, frozenset({"later"}), (), "why"), EVICTED, now=200.0)
    assert pauses.before == {"apps/uid-db": {POD.uid}}
    assert noted(Answer(Result.BUDGET, "because", 5.0)).before == {}


def waiting_for(pod: str) -> Hold:
    return Hold(Hindrance.POD_LEAVING, pod, "it was asked to end")


def test_nobody_waits_for_ever_until_the_pods_of_another_namespace_have_left() -> None:
    """Be it one that takes a day to end, or one after the other."""
    pauses = Pauses()
    for second in range(0, 300, 10):
        pauses.decided(waiting_for(f"slow/pod-{second}"), now=float(second), patience=300.0)
    assert pauses.slow == frozenset()
    pauses.decided(waiting_for("slow/pod"), now=300.0, patience=300.0)
    assert pauses.slow == {"slow"}
    pauses.decided(EVICT, now=301.0, patience=300.0)
    assert pauses.slow == {"slow"}, "for the rest of the evacuation"


def test_who_was_refused_for_an_unknown_reason_is_counted_until_it_is_gone() -> None:
    for result in [Result.FORBIDDEN, Result.FAILED]:
        pauses = noted(Answer(result, "because", 20.0))
        assert pauses.failures == {POD.uid: 1}
        pauses.note(EVICT, Answer(result, "because", 20.0), now=130.0)
        assert pauses.failures == {POD.uid: 2}
        pauses.see([], now=131.0)
        assert pauses.failures == {}


# --- Nodes that are emptied at once: which of them goes first with a workload that has pods on several ---


HERE, THERE, ELSEWHERE = "n1", "n2", "n3"

BEGUN = {HERE: "2026-01-01T00:00:05Z", THERE: "2026-01-01T00:00:00Z", ELSEWHERE: "2026-01-01T00:00:09Z"}


def emptied(*nodes: str, state: State = State.IN_PROGRESS) -> list[Node]:
    label, start = names.of_driver(DRIVER, names.EVACUATION_STATE), names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
    return [samples.node(name=name, labels={label: state}, annotations={start: BEGUN[name]}) for name in nodes]


def objection(*nodes: str, on: tuple[str, ...] = (THERE,), here: str = HERE, seconds: float = SETTLED, **budget: int) -> str:
    rivals = Rivals.of(emptied(*nodes), DRIVER, seconds=seconds)
    others = [samples.pod(f"db-{number}", node=node) for number, node in enumerate(on, start=1)]
    return rivals.objection(pod(here), others, [samples.budget("db", **budget)] if budget else [])


def pod(node: str = HERE, *, ready: bool = True) -> Pod:
    return samples.pod("db-0", node=node, ready=ready)


def test_of_all_that_have_replicas_exactly_one_goes() -> None:
    for listed in list(permutations(BEGUN)):
        places = tuple(BEGUN)
        going = [here for here in places if not objection(*listed, on=tuple(node for node in places if node != here), here=here)]
        assert going == [THERE]


def test_a_budget_that_allows_one_keeps_nodes_apart() -> None:
    assert objection(HERE, THERE, allowed=1, seconds=0.0) == ""


def test_a_budget_that_allows_two_or_of_which_that_is_not_known_does_not() -> None:
    for budgets in [[{"allowed": 2}], [{"allowed": 1, "observed": False}], [{"allowed": 1}, {"allowed": 1}]]:
        made = [samples.budget(f"db-{number}", **each) for number, each in enumerate(budgets)]
        rivals = Rivals.of(emptied(HERE, THERE), DRIVER, seconds=SETTLED)
        assert rivals.objection(pod(), [samples.pod("db-1", node=THERE)], made) != ""


# --- Pods without a node whose ephemeral volume is on a node that is being retired: which of them are evicted, and which are left alone ---


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


def test_what_the_snapshot_says_is_not_enough() -> None:
    for now, version in [
        ({"node": samples.NODE}, "7"),  # it has this node by now
        ({"node": "n2"}, "7"),  # it has another one
        ({"uid": "uid-later"}, "7"),  # another pod has its name
        ({}, ""),  # its version was not told
        ({"deleting_since": stamp()}, "7"),  # it is being deleted
    ]:
        pod = waiting()
        assert held_by(decide(told(scene(pod), pod=replace(pod, **now), version=version))) is Hindrance.NOT_KNOWN


def test_which_one_stays_for_a_reason_that_is_told() -> None:
    for changes, hindrance in [
        ({"tolerations": (Toleration("", "Exists", "", ""),)}, Hindrance.WOULD_COME_BACK),  # it will run here
        ({"owner": None}, Hindrance.BARE_POD),  # nobody makes it again
    ]:
        assert held_by(decide(told(scene(waiting(**changes))))) is hindrance


def test_who_is_none_of_those() -> None:
    for snapshot in [
        scene(waiting(), of="uid-other"),  # the claim is another pod's
        scene(waiting(), claims=(samples.claim(SCRATCH),)),  # nobody owns the claim
        scene(waiting(ephemeral=())),  # it was not asked for as an ephemeral volume
        scene(waiting(node="n2")),  # it is on another node
        scene(waiting(owner=samples.owner("DaemonSet"))),  # a DaemonSet would make it again here
        scene(waiting(deleting_since=stamp())),  # it is being deleted
        scene(waiting(phase="Failed")),  # it has ended
        scene(waiting(), shared_with={"pv-0": ("n2",)}),  # another node has the volume too
        scene(waiting(), volumes=()),  # its volume is elsewhere
    ]:
        decision = decide(told(snapshot, sizes={"apps/uid-db": None}))
        assert not isinstance(decision, Evict | Ask), decision


# --- Pods that wait for a node with a volume on one that is emptied, as a process meets them: on a simulated API server ---


def test_it_is_evicted_and_then_the_evacuation_succeeds() -> None:
    seen = Evictions()

    async def story(bench: Bench) -> None:
        node = await emptying.waiting(bench)
        await change(bench, node, {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert await pods(bench) == set()
        await bench.you.delete(CLAIMS, "db-0-scratch", namespace="default")  # as the garbage collector does
        await wait(bench, 120)
        assert (await node_of(bench, node))["metadata"]["labels"].get(STATE) == "Success"
        [event] = [event for event in await all_of(bench, EVENTS) if event["reason"] == names.POD_EVICTED]
        assert "waits for a node" in event["message"]

    play(story, seen)
    assert seen.calls == ["db-0"]


def test_workloads_that_lost_a_pod_are_not_remembered_without_end() -> None:
    pauses = Pauses()
    for number in range(3000):
        pauses.note(replace(EVICT, workload=f"apps/uid-{number}", waits=number % 2 == 0), EVICTED, now=float(number))
    assert "apps/uid-2999" in pauses.before and "apps/uid-2998" in pauses.waiting_evicted
    assert max(len(pauses.before), len(pauses.waiting_evicted), len(pauses._expected)) <= 1000
