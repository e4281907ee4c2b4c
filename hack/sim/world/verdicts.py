"""Holds every verdict, every gate that is opened and every end of a drain against the truth, at the moment it happens.

A verdict may be behind by what a watch, the pace between two looks and a request take, and not by more; of what happened while a sidecar
was dead or cut off, it knows nothing until it has looked again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from hack.sim.world.truth import REBOOT, RETIRE
from sidecar.kube.api import BUDGETS, NODES
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

SAID_YES: Final = "said yes"
LET_GO: Final = "let go"
DATA_LOST: Final = "data lost"

LAG: Final = 15.0
"""Seconds between a change and the verdict that heeds it: a node in normal life is looked at every 5 s and 2 s after a change at the
earliest; watch, questions and the write itself take a few more in ordinary weather. Later watches and requests of a plan come on top."""
STAND: Final = 90.0
"""Seconds after which a verdict that was overtaken must be withdrawn: what is not watched is looked at every minute."""
OUTLIVED: Final = 2400.0
"""Seconds after which a neighbour must have withdrawn what a dead sidecar said: a quarter of an hour for which that holds, as long again
until the neighbour looks after the node, and its patience."""
_VERDICTS: Final = ((names.RETIRE_READY, RETIRE), (names.DRAIN_READY, REBOOT))
_QUIET: Final = ("events", "leases", "csistoragecapacities", "nodedrainreports")


@dataclass(slots=True)
class Eyes:
    """The spans in which one node's sidecar ran and reached the API server."""

    since: float | None = None
    life: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Those that are over."""

    def sample(self, now: float, *, life: int, sees: bool) -> None:
        if self.since is not None and (not sees or life != self.life):
            self.spans.append((self.since, now))
            self.since = None
        if sees and self.since is None:
            self.since, self.life = now, life

    def had_a_chance(self, begun: float, now: float, *, seconds: float) -> bool:
        """It saw, for so long without a break, what was the case from `begun` on."""
        spans = [*self.spans, *([(self.since, now)] if self.since is not None else [])]
        return any(min(end, now) - max(start, begun) >= seconds for start, end in spans)

    def sees_for(self, now: float, *, seconds: float) -> bool:
        return self.since is not None and now - self.since >= seconds


class Verdicts:
    """Omniscient: it reads the store and the drivers, not what anybody tells."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._lag, self._stand = LAG + world.slack, STAND + world.slack
        self._dangers: dict[tuple[str, str], dict[str, float]] = {}
        """By node and intent: what would be lost, and since when."""
        self._said: dict[tuple[str, str], Json] = {}
        self._told: set[tuple[str, str]] = set()
        self._seen = (-1, -1)
        self.eyes: dict[str, Eyes] = {}

    def heard(self, call: Call) -> None:
        """Something was changed, and nobody has acted on it yet."""
        if str(call.resource).partition(".")[0] in _QUIET:
            return
        self._look()
        if call.resource == NODES and call.subresource == "status":
            self._hear(call.name)
        if call.resource == BUDGETS and call.verb == "delete":
            self._opened(call.name)

    def sample(self) -> None:
        """Every two seconds: what somebody should have withdrawn by now."""
        now, world = self._world.clock(), self._world
        self._look()
        for name, node in world.nodes.items():
            sees = node.sidecar is not None and world.network.up(name)  # what it may not read it must not answer
            self.eyes.setdefault(name, Eyes()).sample(now, life=node.lives, sees=sees)
            self._check_standing(name)

    def dangers(self, node: str, intent: str, *, older_than: float = 0.0) -> list[str]:
        now = self._world.clock()
        return [what for what, at in self._dangers.get((node, intent), {}).items() if now - at > older_than]

    def saw(self, node: str, begun: float, ended: float) -> bool:
        """Whether its sidecar had the time to see what was the case in between."""
        eyes = self.eyes.get(node)
        return eyes is not None and eyes.had_a_chance(begun, ended, seconds=self._lag)

    def ended(self, node: str) -> None:
        """A drainer has done its work and is about to switch the node off for good."""
        now, eyes, truth = self._world.clock(), self.eyes.setdefault(node, Eyes()), self._world.truth
        gone = set(truth.losses(truth.look(), node))
        begun = self._dangers.get((node, RETIRE), {})
        for what in sorted(gone):
            at = begun.get(what, now)
            # A gate stands for volumes that were seen, also if nobody looks any more and somebody still needed them only later.
            seen_from = truth.first_used.get(what.partition(" ")[0], at)
            if now - at > self._lag and eyes.had_a_chance(seen_from, now, seconds=self._stand):
                self._found(DATA_LOST, f"{what} goes with {node}, and nobody gave it up; known for {now - at:.0f} s")

    def _look(self) -> None:
        world, handles = self._world, sum(node.driver._state.serial for node in self._world.nodes.values())
        if self._seen == (seen := (world.cluster.revision, handles)):
            return
        self._seen = seen
        scene = world.truth.look()
        for name in world.nodes:
            self._note(name, RETIRE, world.truth.losses(scene, name))
            self._note(name, REBOOT, world.truth.strandings(scene, name))

    def _note(self, node: str, intent: str, found: Iterable[str]) -> None:
        before, now = self._dangers.get((node, intent), {}), self._world.clock()
        self._dangers[node, intent] = {what: before.get(what, now) for what in found}

    def _hear(self, node: str) -> None:
        """A verdict was written, or said once more."""
        for type_, intent in _VERDICTS:
            condition = self._condition(node, type_)
            if condition is not None and self._said.get((node, type_)) != condition:
                self._said[node, type_] = condition
                if condition["status"] == "True" and (wrong := self.dangers(node, intent, older_than=self._lag)):
                    self._found(SAID_YES, f"{node} is {type_}, and {_loses(intent)} {', '.join(wrong)}")

    def _check_standing(self, node: str) -> None:
        """A True stands for longer than it may: of a sidecar that sees; and of one that is dead, or whose driver is, where a neighbour had
        the time to say so."""
        now = self._world.clock()
        for type_, intent in _VERDICTS:
            condition = self._condition(node, type_)
            if condition is None or condition["status"] != "True" or not self.dangers(node, intent, older_than=self._stand):
                continue
            said = timestamps.to_seconds(condition.get("lastHeartbeatTime", "")) or 0.0
            others = (eyes for name, eyes in self.eyes.items() if name != node and name in self._world.nodes)
            outlived = self._world.wall() - said > OUTLIVED and any(eyes.sees_for(now, seconds=OUTLIVED) for eyes in others)
            stands = self.eyes[node].sees_for(now, seconds=self._stand)
            limit = self._stand if stands else OUTLIVED if outlived and intent == RETIRE else float("inf")
            if wrong := self.dangers(node, intent, older_than=limit):
                self._found(SAID_YES, f"{node} is still {type_}, and {_loses(intent)} {', '.join(wrong)}")

    def _opened(self, budget: str) -> None:
        """Whoever has deleted the budget of a guard has let drainers go on. Nobody here changes gates, so none is deleted to be mended."""
        for node in self._world.nodes:
            found = self._world.cluster.store.find(NODES, node)
            if found and budget == names.guard(node, found["metadata"]["uid"], DRIVER):
                order = self._world.drains.get(node)
                intent = REBOOT if order and order.reboots else RETIRE
                if wrong := self.dangers(node, intent, older_than=self._lag):
                    self._found(LET_GO, f"the gate of {node} was opened, and {_loses(intent)} {', '.join(wrong)}")

    def _condition(self, node: str, type_: str) -> Json | None:
        found = self._world.cluster.store.find(NODES, node)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return next((item for item in conditions if item["type"] == names.condition(DRIVER, type_)), None)

    def _found(self, kind: str, what: str) -> None:
        """Said once for each thing that would be lost."""
        if (kind, what.partition("; ")[0]) not in self._told:
            self._told.add((kind, what.partition("; ")[0]))
            self._world.found(kind, what)


def _loses(intent: str) -> str:
    return "nobody gave up" if intent == RETIRE else "a reboot would strand the pods of"
