"""Pods without a node whose ephemeral volume is on a node that is being retired: which of them are evicted, and which are left alone."""

from dataclasses import replace
from typing import Any

from sidecar.drain.emptying.decisions import Ask, EmptyingView, Evict, Hold
from sidecar.drain.emptying.rules import decide, in_words, unfinished
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.rules import May
from sidecar.kube.api import CLAIMS, EVENTS
from sidecar.model import names
from sidecar.model.nodes import Pod, Toleration
from sidecar.model.objects import Owner
from tests.harness.drain import emptying, samples
from tests.harness.drain.emptying import Evictions, play, pods
from tests.harness.drain.samples import NAMESPACE, stamp
from tests.harness.drain.simulated import EVACUATE, STATE, Bench, all_of, change, node_of, wait

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
