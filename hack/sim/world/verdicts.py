"""Holds every verdict, every gate that is opened and every end of a drain against the truth, at the moment it happens.

A verdict may be behind by what a watch, the pace between two looks and a request take, and not by more; of what happened while a sidecar
was dead or cut off, it knows nothing until it has looked again.

The truth is what would be lost if a node were gone now, or stranded if it were rebooted: from what the drivers really have, and from all
objects. It is a second reading of the promises, and shares no rule of drains with the product. Only data that was written counts: on a
volume that no pod ever ran with there is nothing to lose.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hack.sim.cluster import ApiServer, Call
from hack.sim.stand_ins import claims_of
from hack.sim.world.node import DRIVER
from sidecar.kube.api import BUDGETS, CLAIMS, CLASSES, NODES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

RETIRE: Final = "retire"
REBOOT: Final = "reboot"
_STRICTNESS: Final = ("Ignore", "AllowIdle", "Reprovision", "Block")
_DEFAULT: Final = {RETIRE: "Block", REBOOT: "AllowIdle"}
_OVER: Final = ("Succeeded", "Failed")
SAID_YES: Final = "said yes"

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


# --- the truth ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """A policy, and whether somebody said it for this intent by name."""

    policy: str
    by_name: bool = False


@dataclass(slots=True)
class Scene:
    """All objects that matter, at one moment."""

    pods: list[Json]
    claims: dict[str, Json]
    volumes: list[Json]
    classes: dict[str, Json]
    wanted: set[str] = field(default_factory=set)
    """`namespace/name` of claims that a pod anywhere names, or that a workload is about to make a pod for."""

    @classmethod
    def of(cls, cluster: ApiServer) -> "Scene":
        every = cluster.store.all_of
        scene = cls(
            pods=every(PODS),
            claims={full_name(claim): claim for claim in every(CLAIMS)},
            volumes=every(VOLUMES),
            classes={item["metadata"]["name"]: item for item in every(CLASSES)},
        )
        for pod in scene.pods:
            if (pod.get("status") or {}).get("phase") not in _OVER:
                scene.wanted.update(claims_of(pod))
        for workload in every(STATEFUL_SETS):
            if workload["spec"].get("replicas"):
                meta, template = workload["metadata"], workload["spec"]["template"]
                scene.wanted.update(claims_of({"metadata": meta, "spec": template["spec"]}))
        return scene

    def claim_of(self, volume: Json) -> Json | None:
        ref = volume["spec"].get("claimRef") or {}
        claim = self.claims.get(f"{ref.get('namespace')}/{ref.get('name')}")
        return claim if claim and ref.get("uid") in (None, "", claim["metadata"]["uid"]) else None

    def bound_to(self, claim: str) -> Json | None:
        """The volume of a claim, by the claim's full name."""
        found = self.claims.get(claim)
        name = found["spec"].get("volumeName") if found else None
        return next((volume for volume in self.volumes if volume["metadata"]["name"] == name), None)


class Truth:
    """Remembers what no object says: which volumes were written and when, and since when somebody has acknowledged what."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._used: dict[str, float] = {}
        """By handle: when a pod last began to run with it."""
        self.first_used: dict[str, float] = {}
        """By name of a PersistentVolume: when a pod first ran with it."""
        self._unused: dict[str, float] = {}
        """By handle: when a pod that ran with it ended."""
        self._running: dict[str, list[str]] = {}
        """By uid of a pod: the handles that it runs with."""
        self._acks: dict[str, tuple[str, float]] = {}

    def look(self) -> Scene:
        """To be called after every change: it notes what happens to the data."""
        scene = Scene.of(self._world.cluster)
        running = {pod["metadata"]["uid"]: pod for pod in scene.pods if (pod.get("status") or {}).get("phase") == "Running"}
        now = self._world.clock()
        for handle in (handle for uid, handles in self._running.items() if uid not in running for handle in handles):
            self._unused[handle] = now
        self._running = {uid: self._running.get(uid, []) for uid in running}
        for uid, pod in running.items():
            for volume in filter(None, map(scene.bound_to, claims_of(pod))):
                handle = volume["spec"]["csi"]["volumeHandle"]
                if handle not in self._running[uid]:
                    self._running[uid].append(handle)
                    self._used[handle] = now
                    self.first_used.setdefault(volume["metadata"]["name"], now)
        for item in scene.volumes:
            self._note_ack(item["metadata"])
        return scene

    def losses(self, scene: Scene, node: str) -> Iterator[str]:
        """What nobody gave up, and what would be lost with this node."""
        for volume in self._held(scene, node):
            if not self._given_up(scene, volume, node):
                yield f"{volume['metadata']['name']} ({volume['spec']['csi']['volumeHandle']})"

    def strandings(self, scene: Scene, node: str) -> Iterator[str]:
        """Volumes of this node whose policy forbids what a reboot would do to the pods that want them."""
        for volume in self._held(scene, node):
            claim = scene.claim_of(volume)
            wanted = claim is not None and full_name(claim) in scene.wanted and not _ephemeral(scene, claim)
            # Where the volume names another node its pods wait already, whatever becomes of this one.
            if wanted and _leads_to(volume, node) and said(scene, volume, claim, REBOOT).policy == "Block":
                yield f"{volume['metadata']['name']} ({volume['spec']['csi']['volumeHandle']})"

    def _held(self, scene: Scene, node: str) -> list[Json]:
        """The volumes on this node that were used."""
        here = {volume.id for volume in self._world.nodes[node].driver.volumes()} & self._used.keys()
        return [volume for volume in scene.volumes if (volume["spec"].get("csi") or {}).get("volumeHandle") in here]

    def _given_up(self, scene: Scene, volume: Json, node: str) -> bool:
        claim, spec = scene.claim_of(volume), volume["spec"]
        deleted = claim is None or claim["metadata"].get("deletionTimestamp")
        if deleted and spec.get("persistentVolumeReclaimPolicy") == "Delete" and spec.get("claimRef"):
            return True  # whoever deleted the claim knew the reclaim policy
        if claim and _ephemeral(scene, claim):
            return True
        word = said(scene, volume, claim, RETIRE)
        if word.policy == "Ignore":
            return True
        if claim and full_name(claim) in scene.wanted:
            return False
        if word.policy == "AllowIdle" and word.by_name and claim:
            return True
        known, handle = self._acks.get(volume["metadata"]["uid"]), spec["csi"]["volumeHandle"]
        if known is None:
            return False
        # A use after the acknowledgement voids it, if the sidecar saw that use.
        used, runs = self._used.get(handle, 0.0), any(handle in handles for handles in self._running.values())
        until = self._world.clock() if runs else self._unused.get(handle, 0.0)
        return until < known[1] or not self._world.verdicts.saw(node, max(used, known[1]), until)

    def _note_ack(self, meta: Json) -> None:
        text = (meta.get("annotations") or {}).get(names.ACKNOWLEDGED, "").strip()
        if not text:
            self._acks.pop(meta["uid"], None)
        elif self._acks.get(meta["uid"], ("", 0.0))[0] != text:
            self._acks[meta["uid"]] = text, self._world.clock()


def said(scene: Scene, volume: Json, claim: Json | None, intent: str) -> Said:
    """PersistentVolume or claim, the stricter of the two; then the class, then the default. Nobody here says it of a namespace."""
    own = [word for obj in (volume, claim) if (word := _word(obj, intent))]
    class_ = scene.classes.get(volume["spec"].get("storageClassName") or "")
    return max(own, key=lambda word: _STRICTNESS.index(word.policy)) if own else _word(class_, intent) or Said(_DEFAULT[intent])


def _word(obj: Json | None, intent: str) -> Said | None:
    """What was said for this intent by name outranks what was said for both."""
    notes = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    named = notes.get(f"{names.DRAIN_POLICY}.{intent}")
    text = notes.get(names.DRAIN_POLICY) if named is None else named
    if text is None:
        return None
    return Said(text if text in _STRICTNESS else "Block", by_name=named is not None)


def _ephemeral(scene: Scene, claim: Json) -> bool:
    """The claim was made for a volume of a pod that owns it, and not merely given a pod as its owner."""
    owners = {owner["uid"] for owner in claim["metadata"].get("ownerReferences") or () if owner["kind"] == names.POD}
    for pod in scene.pods:
        if pod["metadata"]["uid"] in owners:
            made = {f"{pod['metadata']['name']}-{item['name']}" for item in pod["spec"].get("volumes") or () if item.get("ephemeral")}
            return claim["metadata"]["name"] in made
    return False


def _leads_to(volume: Json, node: str) -> bool:
    terms = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
    return terms is None or any(node in item.get("values", ()) for term in terms for item in term.get("matchExpressions", ()))


def full_name(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def note(obj: Json, key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")


# --- what is said ------------------------------------------------------------------------------------------------------------


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
                self._found("data lost", f"{what} goes with {node}, and nobody gave it up; known for {now - at:.0f} s")

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
                    self._found("let go", f"the gate of {node} was opened, and {_loses(intent)} {', '.join(wrong)}")

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
