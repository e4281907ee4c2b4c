"""Moments of emptying that seldom come by themselves: nodes look at one set at once, an eviction arrives late, a pod waits for its volume.

What must not happen then is judged by the referee. Each guard is also left out, and noticed to be.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from hack.sim.drains.emptying_plan import EPHEMERAL, EVACUATE, SET
from hack.sim.drains.emptying_world import NOT_WHOLE, EmptyingWorld, play
from hack.sim.drains.evictions import WRONG_EVICTION
from hack.sim.drains.plan import GATED
from hack.sim.drains.replicas import TWO_AWAY
from hack.sim.drains.sender import SENDER
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar.drain.emptying import rules
from sidecar.drain.emptying.pauses import Pauses
from sidecar.drain.emptying.rivals import Rivals
from sidecar.eviction import attempt_io
from sidecar.kube.api import MERGE_PATCH, VOLUMES, Resource
from sidecar.kube.api import NODES as KUBE_NODES
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model import names
from tests.harness.placing import place

NODES: Final = ("n0", "n1", "n2", "n3")
QUICK: Final = Latency(0.02, 0.05)
SLOW: Final = Latency(4.0, 4.5)
"""A write is on its way for so long that whoever looks meanwhile does not see what it does."""
ARGS: Final = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", "--max-concurrent-evacuations=0")
SET_OF_THREE: Final = PlannedEvent(60.0, SET, "db", 3.0, f"Parallel {EPHEMERAL} none")


def played(plan: Plan, before: Callable[[EmptyingWorld], None] = lambda _: None) -> tuple[Report, int]:
    """The report, and how many evictions there were."""
    worlds: list[EmptyingWorld] = []

    def watch(world: EmptyingWorld) -> None:
        worlds.append(world)
        before(world)

    report = play(plan, before=watch)
    return report, worlds[0].evictions.count


# --- two nodes look at the same moment -------------------------------------------------------------------------------------


def all_but_one_at_once() -> Plan:
    """No budget keeps the nodes apart."""
    events = (SET_OF_THREE, *(PlannedEvent(120.0, EVACUATE, node) for node in NODES[1:]))
    return Plan(1, NODES, weather=Weather(read=QUICK, write=SLOW), events=events, args=ARGS, settle=1200.0)


def test_two_nodes_that_look_at_the_same_moment_send_one_replica_away(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, *NODES[1:])
    report, count = played(all_but_one_at_once())
    assert report.ok, str(report)
    assert count == 3


def test_it_is_noticed_when_nodes_do_not_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        place(patch, *NODES[1:])
        patch.setattr(Rivals, "objection", lambda self, pod, others, budgets: "")
        report, _ = played(all_but_one_at_once())
    assert TWO_AWAY in report.kinds, str(report)


# --- an eviction arrives late ----------------------------------------------------------------------------------------------

ARRIVES_AFTER: Final = 80.0
"""Seconds: after the next look, and before another replica that was sent away then is ready again."""
STARTS_SLOWLY: Final = PlannedEvent(60.0, SET, "db", 40.0, f"Parallel {EPHEMERAL} none")


def the_first_arrives_late(world: EmptyingWorld) -> None:
    """The first eviction is not answered, and arrives all the same."""
    post, late = world.api.create_subresource, list[asyncio.Task[Any]]()

    async def posted(resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = "") -> Any:
        async def arrives() -> None:
            await asyncio.sleep(ARRIVES_AFTER)
            with contextlib.suppress(ApiError):
                await post(resource, name, subresource, body, namespace=namespace)

        if subresource == "eviction" and SENDER.get() and not late:
            late.append(asyncio.create_task(arrives()))
            raise Unavailable("the connection broke")
        return await post(resource, name, subresource, body, namespace=namespace)

    world.api.create_subresource = posted  # type: ignore[method-assign]


TWO_TOGETHER: Final = (NODES[1], NODES[1], NODES[2])
"""Two replicas are on the node that is emptied."""


def one_of_two() -> Plan:
    events = (STARTS_SLOWLY, PlannedEvent(160.0, EVACUATE, NODES[1]))
    return Plan(1, NODES, weather=Weather(read=QUICK, write=QUICK), events=events, args=ARGS, settle=1200.0)


def test_while_an_eviction_may_still_arrive_no_other_replica_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, *TWO_TOGETHER)
    report, count = played(one_of_two(), the_first_arrives_late)
    assert report.ok, str(report)
    assert count >= 2


def test_it_is_noticed_when_what_was_not_answered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        place(patch, *TWO_TOGETHER)
        patch.setattr(Pauses, "unanswered", property(lambda self: {}))
        report, _ = played(one_of_two(), the_first_arrives_late)
    assert TWO_AWAY in report.kinds, str(report)


# --- a pod waits for a volume that was made for it alone -------------------------------------------------------------------


def its_node_is_emptied(world: EmptyingWorld) -> None:
    """As soon as the first volume is there, when its pod has no node yet."""
    create = world.cluster.create

    def created(resource: Resource, body: Mapping[str, Any], **others: Any) -> Any:
        made = create(resource, body, **others)
        if resource == VOLUMES and not world.evacuated:
            node = world.place_of(made.obj["metadata"]["name"])
            world.asked(node, True)
            asyncio.get_running_loop().call_soon(taint, world, node)
        return made

    world.cluster.create = created  # type: ignore[method-assign]


def taint(world: EmptyingWorld, node: str) -> None:
    taints = [{"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}]
    world.cluster.patch(KUBE_NODES, node, {"spec": {"taints": taints}}, content_type=MERGE_PATCH)


def one_set() -> Plan:
    return Plan(1, NODES, weather=Weather(read=QUICK, write=QUICK), events=(SET_OF_THREE,), args=ARGS, settle=1200.0)


def test_a_pod_that_waits_for_its_own_volume_is_sent_on() -> None:
    report, count = played(one_set(), its_node_is_emptied)
    assert report.ok, str(report)
    assert count == 1


def _who_waits_is_left_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "waiting_for", lambda view: ())


def _in_whatever_version(patch: pytest.MonkeyPatch, *, real: Any = attempt_io.body) -> None:
    patch.setattr(attempt_io, "body", lambda pod: real(replace(pod, version="")))


@pytest.mark.parametrize(("breaks", "kind"), [(_who_waits_is_left_alone, NOT_WHOLE), (_in_whatever_version, WRONG_EVICTION)])
def test_it_is_noticed_when_it_is_left_alone_or_evicted_in_whatever_version(
    breaks: Callable[[pytest.MonkeyPatch], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        breaks(patch)
        report, _ = played(one_set(), its_node_is_emptied)
    assert kind in report.kinds, str(report)
