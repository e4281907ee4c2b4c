"""Holds every verdict, every guard that was let go and every end of a drain against the truth, at the moment it happens."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from hack.sim.cluster import Call
from hack.sim.drains.eyes import LAG, OUTLIVED, STAND, Eyes
from hack.sim.drains.noted import NotesReferee
from hack.sim.drains.truth import REBOOT, RETIRE, Scene
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import BUDGETS, NODES, PODS, VOLUMES
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

SAID_YES: Final = "said yes"
LET_GO: Final = "let go"
NO_GATE: Final = "no gate"
DATA_LOST: Final = "data lost"

_VERDICTS: Final = ((names.RETIRE_READY, RETIRE), (names.DRAIN_READY, REBOOT))
_EVERY: Final = 2.0
_QUIET: Final = ("events", "leases", "csistoragecapacities", "nodedrainreports")

Danger = dict[str, float]
"""By what would be lost: since when."""


class DrainReferee:
    """Omniscient: it reads the store and the drivers, not what anybody tells."""

    def __init__(self, world: "DrainWorld", *, slack: float) -> None:
        self._world = world
        self._lag, self._stand = LAG + slack, STAND + slack
        self.notes = NotesReferee(world, lag=self._stand)
        self._dangers: dict[tuple[str, str], Danger] = {}
        self._said: dict[tuple[str, str], Json] = {}
        self._guards: dict[str, str] = {}
        """By full name of a guard pod: its node."""
        self._ungated: dict[str, float] = {}
        """By node: since when nothing holds its drainers, and something should."""
        self._for_a_reboot: dict[str, float] = {}
        """By node: until when anybody had to take its cordon for that of a reboot. Its gate was open so long, and is closed afterwards."""
        self._told: set[tuple[str, str, str]] = set()
        self.eyes: dict[str, Eyes] = {}
        self._readers: dict[str, Eyes] = {}
        """The same for sidecars that may read everything besides."""
        self._processes: dict[str, Eyes] = {}
        """The same for processes whose driver may be dead."""

    async def after(self, call: Call) -> None:
        """The hook of the API server: the change has happened, and nobody has acted on it yet."""
        if call.verb in ("get", "list", "watch") or str(call.resource).partition(".")[0] in _QUIET:
            return
        self._look()
        if call.resource == VOLUMES and call.verb in ("create", "patch"):
            self.notes.hear(call.name)
        if call.resource == NODES and call.subresource == "status":
            self._hear(call.name)
        if call.resource == PODS and call.subresource == "eviction":
            self._evicted(f"{call.namespace}/{call.name}")
        if call.resource == BUDGETS and call.verb == "delete":
            self._opened(call.name)

    def sample(self) -> None:
        """Every two seconds: what somebody should have withdrawn by now."""
        now = self._world.clock()
        self._look()
        self.notes.sample()
        for name, node in self._world.nodes.items():
            sees = self._world.sees(name)
            self.eyes.setdefault(name, Eyes()).sample(now, life=node.lives, sees=sees)
            reads = sees and not self._world.network.restricts(name)
            self._readers.setdefault(name, Eyes()).sample(now, life=node.lives, sees=reads)
            self._processes.setdefault(name, Eyes()).sample(now, life=node.lives, sees=self._world.runs(name))
            if self._world.exists(name):
                self._check_standing(name)

    def dangers(self, node: str, intent: str, *, older_than: float = 0.0) -> list[str]:
        now = self._world.clock()
        return [what for what, at in self._dangers.get((node, intent), {}).items() if now - at > older_than]

    def saw_acknowledged(self, node: str, since: float, used: float) -> bool:
        """Whether its sidecar had the time to note an acknowledgement before the new use. The use itself it need not have seen: what it
        cannot tell of a time in which it was away it must not take for granted."""
        eyes = self._readers.get(node)
        return eyes is not None and eyes.had_a_chance(since, used, seconds=LAG)

    def ended(self, node: str) -> None:
        """A drainer has done its work and is about to switch the node off for good."""
        now, eyes = self._world.clock(), self.eyes.setdefault(node, Eyes())
        if self._world.may_be_taken_for_a_reboot(node):
            return  # nobody could know better
        scene = self._world.truth.look()
        gone = set(self._world.truth.losses(scene, node, gone=lambda other: False))
        begun, since = self._dangers.get((node, RETIRE), {}), self._for_a_reboot.get(node, 0.0)
        for what in sorted(gone - self._world.truth.snapshots.keys()):
            at = max(begun.get(what, now), since)
            # A gate stands for volumes that were seen, also if nobody looks any more and somebody still needed them only later.
            seen_from = max(self._world.truth.first_used.get(what.partition(" ")[0], at), since)
            if now - at > self._lag and eyes.had_a_chance(seen_from, now, seconds=self._stand):
                self._found(DATA_LOST, node, f"{what} goes with {node}, and nobody gave it up; known for {now - at:.0f} s")

    # --- looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        truth, scene = self._world.truth, self._world.truth.look()
        for name in self._world.nodes:
            if self._world.may_be_taken_for_a_reboot(name):
                self._for_a_reboot[name] = self._world.clock()
            self._note(name, RETIRE, truth.losses(scene, name, gone=self._world.is_let_go))
            self._note(name, REBOOT, truth.strandings(scene, name))
        self._note_guards(scene)

    def _note(self, node: str, intent: str, found: Iterable[str]) -> None:
        before, now = self._dangers.get((node, intent), {}), self._world.clock()
        self._dangers[node, intent] = {what: before.get(what, now) for what in found}

    def _note_guards(self, scene: Scene) -> None:
        for pod in scene.pods:
            meta = pod["metadata"]
            if names.GUARDED_NODE in (meta.get("labels") or {}):
                self._guards[f"{meta['namespace']}/{meta['name']}"] = pod["spec"].get("nodeName") or ""

    def _hear(self, node: str) -> None:
        """A verdict was written, or said once more."""
        for type_, intent in _VERDICTS:
            condition = self._condition(node, type_)
            if condition is None or self._said.get((node, type_)) == condition:
                continue
            self._said[node, type_] = condition
            if condition["status"] == "True" and (wrong := self.dangers(node, intent, older_than=self._lag)):
                self._found(SAID_YES, node, f"{node} is {type_}, and {_loses(intent)} {', '.join(wrong)}")

    def _evicted(self, pod: str) -> None:
        node = self._guards.get(pod)
        drain = self._world.drains.get(node or "")
        if not node or drain is None:
            return
        intent = REBOOT if drain.reboots else RETIRE
        wrong = self.dangers(node, intent, older_than=self._lag)
        if wrong and not (intent == RETIRE and self._world.may_be_taken_for_a_reboot(node)):
            self._found(LET_GO, node, f"the guard of {node} let a drainer go on, and {_loses(intent)} {', '.join(wrong)}")

    def _opened(self, budget: str) -> None:
        """Whoever has deleted the budget of a guard has let drainers go on. Nobody here changes gates, so none is deleted to be mended."""
        for node in self._world.nodes:
            if budget == self._gate_of(node):
                intent = REBOOT if self._world.may_be_taken_for_a_reboot(node) else RETIRE
                if self._knows_what_for(node) and (wrong := self.dangers(node, intent, older_than=self._lag)):
                    self._found(LET_GO, node, f"the gate of {node} was opened, and {_loses(intent)} {', '.join(wrong)}")

    def _knows_what_for(self, node: str) -> bool:
        """Its sidecar could know that a reboot for which the gate was opened is over; or there is none, or it is not over."""
        since = self._for_a_reboot.get(node)
        return since is None or self._world.may_be_taken_for_a_reboot(node) or self._world.clock() - since > self._lag

    def _check_standing(self, node: str) -> None:
        now = self._world.clock()
        if not self.eyes[node].sees_for(now, seconds=self._stand):
            self._check_forgotten(node)
            self._check_taken_back(node)
            return
        for type_, intent in _VERDICTS:
            condition = self._condition(node, type_)
            if condition and condition["status"] == "True" and (wrong := self.dangers(node, intent, older_than=self._stand)):
                self._found(SAID_YES, node, f"{node} is still {type_}, and {_loses(intent)} {', '.join(wrong)}")
        # A snapshot of which nobody knows the place makes every node Unknown, and must not hold drains of nodes without a volume.
        wrong = [what for what in self.dangers(node, RETIRE, older_than=self._stand) if what not in self._world.truth.snapshots]
        if not wrong or self._world.may_be_taken_for_a_reboot(node) or self._has_gate(node):
            self._ungated.pop(node, None)
        elif now - self._ungated.setdefault(node, now) > self._lag:
            self._found(NO_GATE, node, f"nothing holds drainers of {node}, and with it went {', '.join(wrong)}")

    def _check_forgotten(self, node: str) -> None:
        """Nobody stands for it any more, and a neighbour had the time to say so."""
        now, condition = self._world.clock(), self._condition(node, names.RETIRE_READY)
        if condition is None or condition["status"] != "True":
            return
        said = timestamps.to_seconds(condition.get("lastHeartbeatTime", "")) or 0.0
        others = (name for name in self._world.nodes if name != node)
        watched = any(self.eyes[name].sees_for(now, seconds=OUTLIVED) for name in others if name in self.eyes)
        wrong = self.dangers(node, RETIRE, older_than=OUTLIVED)
        if wrong and watched and self._world.wall() - said > OUTLIVED:
            self._found(SAID_YES, node, f"nobody has withdrawn that {node} is RetireReady, and nobody gave up {', '.join(wrong)}")

    def _check_taken_back(self, node: str) -> None:
        """A process has started that cannot judge, for its driver is dead: what an earlier one has said must not stand."""
        now = self._world.clock()
        if self.eyes[node].since is not None or not self._processes[node].sees_for(now, seconds=self._stand):
            return
        for type_, intent in _VERDICTS:
            condition = self._condition(node, type_)
            if condition and condition["status"] == "True" and (wrong := self.dangers(node, intent, older_than=self._stand)):
                self._found(SAID_YES, node, f"{node} is {type_} beside a dead driver, and {_loses(intent)} {', '.join(wrong)}")

    # --- reading ------------------------------------------------------------------------------------------------------

    def _condition(self, node: str, type_: str) -> Json | None:
        found = self._world.cluster.store.find(NODES, node)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return next((item for item in conditions if item["type"] == names.condition(DRIVER, type_)), None)

    def _gate_of(self, node: str) -> str:
        found = self._world.cluster.store.find(NODES, node)
        return names.guard(found["metadata"]["uid"], DRIVER) if found else ""

    def _has_gate(self, node: str) -> bool:
        return self._world.cluster.store.find(BUDGETS, self._gate_of(node), NAMESPACE) is not None

    def _found(self, kind: str, node: str, what: str) -> None:
        """Said once for each thing that would be lost."""
        if (kind, node, what.partition("; ")[0]) not in self._told:
            self._told.add((kind, node, what.partition("; ")[0]))
            self._world.found(kind, what)


def _loses(intent: str) -> str:
    return "nobody gave up" if intent == RETIRE else "a reboot would strand the pods of"
