"""What one process remembers of its evictions, which of two emptied nodes goes first, and pods that wait for a node with a volume here."""

from dataclasses import replace
from itertools import permutations

from sidecar.drain.emptying.decisions import EmptyingView, Evict, Hold
from sidecar.drain.emptying.pauses import Pauses
from sidecar.drain.emptying.rivals import SETTLED, Rivals
from sidecar.drain.emptying.rules import decide
from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.answers import EVICTED, Answer, Result
from sidecar.eviction.rules import May
from sidecar.kube.api import CLAIMS, EVENTS
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
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
    assert not pauses.for_another(asked=True).in_doubt(60.0)


def test_who_came_after_a_pod_of_its_workload_was_evicted_was_put_back_until_the_evacuation_is_undone() -> None:
    pauses, again = noted(EVICTED), replace(POD, uid="another")
    foreign = replace(again, namespace="evil")
    assert pauses.put_back([POD, again, foreign]) == {"another"}
    assert pauses.for_another(asked=True).put_back([again]) == {"another"}
    assert pauses.for_another(asked=False).put_back([again]) == frozenset()


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


# --- Nodes that are emptied at once: which of them goes first with a workload that has pods on several ---


HERE, THERE, ELSEWHERE = "n1", "n2", "n3"

BEGUN = {HERE: "2026-01-01T00:00:05Z", THERE: "2026-01-01T00:00:00Z", ELSEWHERE: "2026-01-01T00:00:09Z"}


def emptied(*nodes: str) -> list[Node]:
    label, start = names.of_driver(DRIVER, names.EVACUATION_STATE), names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
    return [samples.node(name=name, labels={label: State.IN_PROGRESS}, annotations={start: BEGUN[name]}) for name in nodes]


def objects(here: str, *nodes: str) -> bool:
    others = [samples.pod(f"db-{number}", node=node) for number, node in enumerate(set(nodes) - {here}, start=1)]
    return bool(Rivals.of(emptied(*nodes), DRIVER, seconds=SETTLED).objection(samples.pod("db-0", node=here), others, []))


def test_of_all_that_have_replicas_exactly_one_goes() -> None:
    for listed in permutations(BEGUN):
        assert [here for here in BEGUN if not objects(here, *listed)] == [THERE]


# --- Pods without a node whose ephemeral volume is on a node that is being retired ---


TAINTED = samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
SCRATCH = "db-0-scratch"


def waiting() -> Pod:
    return samples.pod("db-0", SCRATCH, ephemeral=(SCRATCH,), node="", phase="Pending", ready=False)


def scene(pod: Pod) -> Snapshot:
    """Its volume was made here."""
    claim = samples.claim(SCRATCH, owner=Owner("v1", "Pod", "db-0", pod.uid, controller=True))
    return samples.snapshot(node=TAINTED, claimants=(pod,), volumes=(samples.volume("pv-0", SCRATCH),), claims=(claim,))


def test_what_the_snapshot_says_is_not_enough() -> None:
    for now, version in [
        ({"node": samples.NODE}, "7"),  # it has this node by now
        ({"node": "n2"}, "7"),  # it has another one
        ({"uid": "uid-later"}, "7"),  # another pod has its name
        ({}, ""),  # its version was not told
        ({"deleting_since": stamp()}, "7"),  # it is being deleted
    ]:
        pod = waiting()
        is_now = replace(pod, **now)
        decision = decide(EmptyingView(scene(pod), {NAMESPACE: (is_now,)}, versions={is_now.uid: version}))
        assert isinstance(decision, Hold) and decision.hindrance is Hindrance.NOT_KNOWN


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
