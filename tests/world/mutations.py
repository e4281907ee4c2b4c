"""The real rooms, broken on purpose: what each mutation does, and what the worlds must say of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hack.sim.world import doors
from hack.sim.world.bounds import DESTROYED
from hack.sim.world.doors import NodeKube
from hack.sim.world.driver_deaths import FATAL
from hack.sim.world.invariants import CAPACITY, KEPT, LEAKED, LEFT_OVER, LOST, PRESSING, RESTLESS, STUCK, TRESPASS
from hack.sim.world.plan import Plan, plan_of
from hack.sim.world.referee import HOLLOW, TWO_OWNERS
from sidecar.capacity import controller as publishing
from sidecar.capacity import rules as capacity
from sidecar.capacity.controller import CapacityPublisher
from sidecar.csi.api import CreatedVolume
from sidecar.csi.losses import Loss, Losses
from sidecar.kube.api import VOLUMES
from sidecar.kube.reflector import Reflector
from sidecar.local import volume_location
from sidecar.model import names
from sidecar.ownership import rules as ownership
from sidecar.ownership import selected_node_body
from sidecar.provisioning import conclusions, decisions, progress, removal, volume_rules
from sidecar.provisioning.creations import orphan_cleanup
from sidecar.provisioning.effects import creation
from sidecar.provisioning.effects.creation import Creator
from sidecar.provisioning.effects.creation_log import CreationLog
from sidecar.provisioning.effects.reporting import ClaimReports
from sidecar.provisioning.requests import volume as volumes

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """`kinds`: any of these is the right finding. `plan`: of a world that may find it."""

    name: str
    breaks: Callable[[Patch], None]
    kinds: frozenset[str]
    args: tuple[str, ...] = ()
    """Flags without which it changes nothing."""
    without: tuple[str, ...] = ()
    """What is left out of its worlds, because one write in thousands shows it."""

    def plan(self, seed: int) -> Plan:
        plan = plan_of(seed, without=self.without)
        return replace(plan, args=(*plan.args, *self.args))


def _no_guard(patch: Patch) -> None:
    def with_selected_node(whole: bytes, node: str, *, real: Any = selected_node_body.with_selected_node) -> bytes:
        body = json.loads(real(whole, node))
        del body["metadata"]["resourceVersion"]
        return json.dumps(body).encode()

    patch.setattr(selected_node_body, "with_selected_node", with_selected_node)


def _object_first(patch: Patch) -> None:
    async def create(self: Any, uid: str, view: Any, attempt: Any, *, real: Any = Creator.create) -> float | None:
        guess = CreatedVolume(attempt.request.name, attempt.request.required_bytes, topologies=(view.here.segment,))
        await self._storer._kube.create(VOLUMES, volumes.build(view.here, attempt.claim, attempt.class_, attempt.request, guess))
        return await real(self, uid, view, attempt)

    patch.setattr(Creator, "create", create)


def _dropped_events(patch: Patch) -> None:
    def handle(self: Any, event: Any, *, real: Any = Reflector._handle) -> None:
        # The stand-ins see through reflectors too; theirs stay whole.
        if isinstance(self._api, NodeKube) and self._rng() < 0.02:
            self.resource_version = event.resource_version
        else:
            real(self, event)

    patch.setattr(Reflector, "_handle", handle)


def _no_look_for_room(patch: Patch) -> None:
    patch.setattr(ownership, "_judge_room", lambda view: ownership.Bid("there will be room"))


def _relist_keeps_all(patch: Patch) -> None:
    async def relist(self: Any, *, real: Any = Reflector._list) -> None:
        if isinstance(self._api, NodeKube):
            self.store.missing = lambda seen: []
        await real(self)

    patch.setattr(Reflector, "_list", relist)


def _never_given_back(patch: Patch) -> None:
    def conclude(view: Any, attempt: Any, outcome: Any, *, real: Any = conclusions.conclude) -> Any:
        reached, conclusion = real(view, attempt, outcome)
        if isinstance(conclusion, decisions.Reschedule):
            return reached, decisions.Retry(conclusion.claim, conclusion.why)
        return reached, conclusion

    patch.setattr(creation, "conclude", conclude)


def _creation_forgotten(patch: Patch) -> None:
    def conclude(view: Any, attempt: Any, outcome: Any, *, real: Any = conclusions.conclude) -> Any:
        reached, conclusion = real(view, attempt, outcome)
        if isinstance(conclusion, decisions.Remember):
            return progress.NOT_BEGUN, decisions.Retry(conclusion.claim, conclusion.why)
        return reached, conclusion

    async def begin(self: Creator, attempt: Any) -> str:
        return ""

    patch.setattr(creation, "conclude", conclude)
    patch.setattr(Creator, "_begin", begin)


def _nothing_written_down(patch: Patch) -> None:
    async def begin(self: doors.NodeJournal, begun: Any) -> str:
        return ""

    patch.setattr(doors.NodeJournal, "begin", begin)


def begun_without_a_record(patch: Patch) -> None:
    async def begin(self: CreationLog, record: Any) -> str:
        self._table.records.keep(record)
        await self.journal.begin(record)
        return ""

    patch.setattr(CreationLog, "begin", begin)


def _object_gone_first(patch: Patch) -> None:
    def decide(view: Any, *, real: Any = volume_rules.decide_volume) -> Any:
        decision = real(view)
        return volume_rules.Remove(decision.volume, decision.why) if isinstance(decision, volume_rules.Empty) else decision

    patch.setattr(removal, "decide_volume", decide)


def _everywhere_is_here(patch: Patch) -> None:
    patch.setattr(volume_location, "_lies_here", lambda here, affinity, identity: True)


def _no_back_off(patch: Patch) -> None:
    patch.setattr(ClaimReports, "later", lambda self, uid: self._clock() + 0.05)


def _duplicates_stay(patch: Patch) -> None:
    patch.setattr(capacity, "_sort", lambda view, real=capacity._sort: (real(view)[0], [], []))


def _stale_for_ever(patch: Patch) -> None:
    def decide(view: Any, *, real: Any = capacity.decide) -> Any:
        decision = real(view)
        fresh = isinstance(decision, capacity.Update) and decision.why.endswith("fresh again")
        return capacity.Rest(view.now + view.publisher.poll_interval, "it looks right") if fresh else decision

    patch.setattr(publishing, "decide", decide)


def _another_driver_s_are_ours(patch: Patch) -> None:
    manager = names.CAPACITY_MANAGER_LABEL
    patch.setattr(capacity, "is_managed", lambda record, publisher: record.labels.get(manager) == publisher.manager)
    patch.setattr(capacity, "selector", lambda publisher: f"{manager}={publisher.manager}")


def _gone_classes_are_kept(patch: Patch) -> None:
    patch.setattr(CapacityPublisher, "_forget", lambda self, class_name: None)


def _driver_is_killed_again(patch: Patch) -> None:
    patch.setattr(Losses, "remember", lambda self, call, count, now: Loss(count, now))


def _old_lines_are_believed(patch: Patch) -> None:
    orphaned = orphan_cleanup._orphaned
    patch.setattr(orphan_cleanup, "_orphaned", lambda here, record: orphaned(here, replace(record, unproven=False)))


def _finding(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


MUTATIONS = (
    Mutation("the guard is removed from the ownership write", _no_guard, _finding(TWO_OWNERS)),
    Mutation("the PersistentVolume is written before the volume", _object_first, _finding(HOLLOW)),
    Mutation("the reflector drops an event now and then", _dropped_events, _finding(LOST, LEFT_OVER, STUCK, LEAKED)),
    Mutation("a node bids without looking for room", _no_look_for_room, _finding(RESTLESS)),
    Mutation("a new list removes nothing", _relist_keeps_all, _finding(LOST, LEAKED, RESTLESS, CAPACITY)),
    Mutation("a claim is not given back where there is no room", _never_given_back, _finding(LOST)),
    Mutation("a creation that may still be running is forgotten", _creation_forgotten, _finding(LEAKED)),
    Mutation("a creation that was begun is not written down", _nothing_written_down, _finding(LEAKED)),
    Mutation("the object is removed before the volume", _object_gone_first, _finding(LEAKED, STUCK)),
    Mutation("volumes of other nodes are taken for ours", _everywhere_is_here, _finding(TRESPASS)),
    Mutation("a duplicate of a capacity object stays", _duplicates_stay, _finding(CAPACITY)),
    Mutation("a figure that is fresh again is still called stale", _stale_for_ever, _finding(CAPACITY)),
    Mutation("another driver's capacity objects are taken for ours", _another_driver_s_are_ours, _finding(TRESPASS)),
    Mutation("what is known of a class is kept for ever", _gone_classes_are_kept, _finding(KEPT)),
    Mutation("a call that killed its driver is made again at once", _driver_is_killed_again, _finding(FATAL)),
    Mutation("a line that was left long ago is believed", _old_lines_are_believed, _finding(DESTROYED)),
    Mutation("failures are retried without back-off", _no_back_off, _finding(PRESSING)),
)
