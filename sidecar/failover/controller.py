"""Fails over what has lost its storage: looks at the evidence, decides, acts. What is decided stands in the rules; here is only the order.

A forced act is one write, and before each one all is read anew: the victim, the pod, its volumes and attachments, and the evidence. Who
acts holds the one Lease of the driver; without it, or where the API server does not answer, nothing happens.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from sidecar.drain.course import Held
from sidecar.drain.lease_io import HeldLease, Holder
from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import May, Result
from sidecar.failover import Settings, brakes
from sidecar.failover.brakes import AFTER_OUTAGE, AFTER_STORM, DEBOUNCE, Record, is_storm
from sidecar.failover.door_io import Drbd
from sidecar.failover.evidence import Fact, Snapshot, either, excluded, only_copy, powered_off, resource_of
from sidecar.failover.look_io import Candidate, Looks
from sidecar.failover.numbers import Numbers, Shown
from sidecar.failover.survivor import SILENT, Cluster, Decision, Step, judge
from sidecar.failover.unit import Attached, PodVolume, Unit, Victim, Word
from sidecar.failover.victim import OFF, Act, AddTaint, Evict, Memory, Own, Release, RemoveTaint, decide
from sidecar.kube.api import ATTACHMENTS, MERGE_PATCH, NODES, PODS, KubeApi
from sidecar.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable, Withdrawn
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import TRUE, Node, Pod, Taint
from sidecar.model.objects import Volume
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM: Final = "failover"
TICK: Final = 1.0
SOON: Final = 2.0  # between two looks at a node while something is to be done there
OWN_EVERY: Final = 5.0
IDLE: Final = 60.0  # while nothing can be done there
_LONGEST_IDLE: Final = 1800.0
OTHERS: Final = 5.0  # while another sidecar has the Lease
FRESH: Final = 5.0  # seconds: what a write is decided on was asked for no longer ago
LEASE: Final = 30  # seconds for which the Lease of a holder that has died keeps the others out
_OFF: Final = "powered off "  # in the place of a resource: somebody says of this boot that its power was cut, so it is about all of them
_MOST_STEPS: Final = 8
_COMES_BACK: Final = 60.0  # between two deletions of the same
_REFUSED_FOR: Final = 60.0  # seconds for which a budget may refuse until that is told
_LONGEST: Final = 600.0  # seconds that a replacement is waited for
_MANY: Final = 1000
_KINDS: Final = (
    (Pod, "v1", names.POD),
    (Node, "v1", names.NODE),
    (Attached, ATTACHMENTS.api_version, names.ATTACHMENT),
    (PodVolume | Volume, "v1", names.VOLUME),
)
_DONE: Final = ("done", "gone", Result.EVICTED, Result.GONE)


@dataclass(slots=True)
class _Suspect:
    """A node of which something is proven, for as long as it is."""

    node: str = ""  # the Node's name; empty: not known yet
    boot: str = ""  # which machine and which of its boots it is
    proven: Mapping[str, float] = field(default_factory=dict)  # by resource: since when it is proven that the node cannot write
    due: float = 0.0  # when to look at it again
    idle: float = SOON  # the next wait, where nothing of the driver is left on it: twice as long each time
    guards: Mapping[str, str] = field(default_factory=dict)  # by what would fail over: the guard that keeps it
    begun: dict[str, tuple[str, float]] = field(default_factory=dict)  # by what was written to: the stage, and since when


class Failover:
    """`run` is a task; its parts are guarded one by one. `own_node`: this Node as the watch shows it."""

    def __init__(self, tools: Tools, kube: KubeApi, settings: Settings, door: Drbd, *, own_node: Callable[[], Node | None]) -> None:
        self._tools, self._kube, self._settings, self._door, self._own_node = tools, kube, settings, door, own_node
        self._clock, self._wall = tools.clock, tools.wall
        self._looks = Looks(kube, settings.driver, clock=tools.clock, wall=tools.wall)
        self._evictor = Evictor(kube, clock=tools.clock, rng=tools.rng)
        self._off: Store[Node] = Store()
        self._memory, self._frozen_until, self._frozen = Memory(), float("-inf"), ""
        self._ours: frozenset[str] | None = None  # resources of this node that are volumes of Kubernetes; None: not known
        self._lease: HeldLease | None = None
        self._read_at: float | None = None  # the last whole reading, as far as somebody has asked for these numbers
        self._since: dict[tuple[str, str], float] = {}  # by resource and peer: since when it is proven
        self._suspects: dict[str, _Suspect] = {}  # by peer: a node as the storage calls it
        self._asked: dict[str, float] = {}  # by uid of a pod, or name of an attachment: when it was deleted last
        self._refused: dict[str, float] = {}  # by uid of a pod: since when a budget refuses its eviction
        self._told: set[tuple[str, str]] = set()
        self._replaced: dict[str, tuple[str, float]] = {}  # by claim: the node where its pod was, and when the first write for that was
        self._seen_at = 0.0
        self.numbers = Numbers(self._shown)
        tools.metrics.watch_more(self.numbers)

    async def run(self) -> None:
        reflector: Reflector[Node] = Reflector(
            self._kube,
            NODES,
            project=Node.of,
            store=self._off,
            label_selector=names.POWERED_OFF,
            optional=True,
            clock=self._clock,
            rng=self._tools.rng,
        )
        parts = {
            "evidence": self._door.run,
            "nodes without power": reflector.run,
            "other nodes": self._survive,
            "own storage": self._look_after_own,
        }
        async with asyncio.TaskGroup() as group:
            for name, run in parts.items():
                group.create_task(self._tools.keep_running(ROOM, name, run), name=name)

    def snapshot(self) -> Snapshot:
        return self._door.snapshot(self._clock())

    def _shown(self) -> Shown:
        now, node, seen = self._clock(), self._own_node(), self.snapshot()
        self._read_at = seen.at if seen.complete else self._read_at
        return Shown(
            guards=[guard for suspect in self._suspects.values() for guard in suspect.guards.values()],
            age=now - self._read_at if self._read_at is not None else None,
            disagreements=seen.disagreements,
            is_frozen=now < self._frozen_until,
            is_tainted=node is not None and self._own_taint(node) is not None,
        )

    def copies(self) -> dict[str, bool | None]:
        """For drain decisions, by name of a resource: whether the only copy that is up to date is here."""
        now = self._clock()
        return {resource.name: only_copy(resource, now) for resource in self.snapshot().resources.values()}

    # --- other nodes: the survivor ------------------------------------------------------------------------------------------

    async def _survive(self) -> None:
        while True:
            await self.turn()
            await self._see_replacements()
            self._door.changed.clear()
            try:
                async with asyncio.timeout(TICK):
                    await self._door.changed.wait()
            except TimeoutError:
                pass

    async def turn(self) -> None:
        """One look at the evidence, and at each node that it concerns, if that is due. It raises nothing that the API server answers."""
        now = self._clock()
        self._look_at_evidence(now)
        for peer, suspect in self._suspects.items():
            if suspect.due > now:
                continue
            try:
                suspect.due = now + await self._case(peer, suspect)
            except ApiError as error:
                if isinstance(error, Unavailable | TooManyRequests):
                    self._freeze(AFTER_OUTAGE, f"the API server was away a moment ago: {error}")
                is_denied = isinstance(error, Forbidden)
                suspect.due = now + (IDLE if is_denied else SOON)
                log.log(
                    logging.WARNING if is_denied else logging.INFO,
                    "A node could not be looked at",
                    extra={"fields": {"node": peer, "err": str(error)}},
                )

    def _freeze(self, seconds: float, why: str) -> None:
        if (until := self._clock() + seconds) >= self._frozen_until:
            self._frozen_until, self._frozen = until, why

    def _look_at_evidence(self, now: float) -> None:
        resources = self.snapshot().resources.values()
        facts = {(resource.name, peer): excluded(resource, peer, now) for resource in resources for peer in resource.peers}
        for node in self._off.values():
            key = f"{_OFF}{node.labels.get(names.POWERED_OFF)}", self._peer_of(node.name)
            facts[key] = Fact(node.ready != TRUE, "it is labelled, and not Ready")
        self._since = brakes.held_since(self._since, facts, now)
        self._suspects = {peer: self._suspects.get(peer) or _Suspect() for _, peer in self._since}
        for peer, suspect in self._suspects.items():
            suspect.proven = {resource: since for (resource, other), since in self._since.items() if other == peer}
            if now in suspect.proven.values():  # however long nothing was to be done there
                suspect.due = min(suspect.due, now + DEBOUNCE)

    def _peer_of(self, node: str) -> str:
        return next((peer for peer, suspect in self._suspects.items() if suspect.node == node), node)

    async def _see_replacements(self) -> None:
        """How long it took until the pods run again, for the metrics."""
        now = self._clock()
        self._replaced = {claim: replaced for claim, replaced in self._replaced.items() if now - replaced[1] < _LONGEST}
        if not self._replaced or now < self._seen_at + OTHERS:
            return
        self._seen_at = now
        try:
            for claim in await self._looks.running({claim: node for claim, (node, _) in self._replaced.items()}):
                self.numbers.seconds.observe(("running",), self._clock() - self._replaced.pop(claim)[1])
        except ApiError:
            pass  # another look follows

    async def _case(self, peer: str, suspect: _Suspect) -> float:
        """Seconds until the node is to be looked at again."""
        name = suspect.node or await self._looks.node_of(peer, self._settings.namespace)
        # Asked before it is time too: since when the kubelet is silent only looking shows.
        seen = await self._looks.victim(name) if name not in ("", self._settings.node) else None
        if seen is None:
            return IDLE
        before, suspect.node, suspect.boot = suspect.boot, name, f"{seen.node.uid}/{seen.boot_id}"
        if before not in ("", suspect.boot):  # nothing is proven of that
            self._since = {key: since for key, since in self._since.items() if key[1] != peer}
            return TICK
        if (wait := min(suspect.proven.values()) + DEBOUNCE + self._stagger(name, suspect.proven) - self._clock()) > 0.0:
            return min(wait, TICK)
        is_off = powered_off(seen.node, seen.boot_id).holds
        volumes = await self._looks.volumes(lambda resource: is_off or resource in suspect.proven)
        candidates = await self._looks.candidates(name, volumes)
        for gone in suspect.begun.keys() - {one.named for one in candidates}:
            stage, since = suspect.begun.pop(gone)
            self.numbers.seconds.observe((stage,), self._clock() - since)
        if candidates:
            suspect.idle = SOON
            return await self._fail_over(suspect, seen, candidates)
        wait, suspect.idle, suspect.guards = suspect.idle, min(2.0 * suspect.idle, _LONGEST_IDLE), {}
        return wait

    def _stagger(self, name: str, proven: Mapping[str, float]) -> float:
        """Those who could act do not all begin at once: by their place among those with a copy, or, where all could, by their own share."""
        resources, me = self.snapshot().resources, self._settings.node
        ranks = [
            brakes.rank(resource, name, me, [peer.name for peer in resources[resource].peers.values() if peer.up_to_date])
            for resource in proven
            if resource in resources
        ]
        return brakes.STAGGER * min(ranks) if ranks else IDLE * brakes.share(name, me)

    async def _fail_over(self, suspect: _Suspect, seen: Victim, candidates: Sequence[Candidate]) -> float:
        """One after the other, with the Lease: without it nothing is done, and nothing is asked."""
        lease = self._lease_of_driver() if self._settings.acts else None
        if self._settings.acts and (lease is None or not isinstance(await lease.hold(now=True), Held)):
            return OTHERS
        again, guards = IDLE, dict[str, str]()
        try:
            cluster, rival = await self._looks.cluster(seen), await self._looks.rival()
            if is_storm(cluster.of_driver):
                self._freeze(AFTER_STORM, "most nodes of the driver were not Ready a moment ago")
            for candidate in candidates:
                again = min(again, await self._carry_out(candidate, suspect, cluster, rival, guards))
            suspect.guards = guards
        finally:
            if lease is not None:
                await lease.leave()
        return again

    async def _carry_out(self, candidate: Candidate, suspect: _Suspect, cluster: Cluster, rival: str, guards: dict[str, str]) -> float:
        """One write after the other, each on what was read for it. Seconds until there is more to do."""
        left, again = [candidate], IDLE
        for _ in range(_MOST_STEPS):
            if not left:
                break
            one, asked_at = left.pop(0), self._clock()
            seen = await self._looks.victim(suspect.node)
            if seen is None or seen.node.uid != cluster.victim.node.uid:
                return IDLE
            missing_for = self._clock() - min(suspect.proven.values())
            seen = replace(seen, remediated_by=seen.remediated_by or rival, missing_for=missing_for)
            unit = await self._looks.unit(one, seen, self._proof)
            if unit is None:
                continue
            decision = self._judge(unit, replace(cluster, victim=seen), suspect.proven)
            guards[one.named] = self._note(one, unit, decision)
            again = min(again, decision.again)
            done = decision.step not in (Step.NONE, Step.WAIT) and await self._do(decision, unit, seen, asked_at)
            if decision.step is Step.TAINT:
                cluster = replace(cluster, may_taint=done)
                left.insert(0, one)
            elif done:
                self._time(one, unit, suspect, seen)
                if decision.step is Step.DELETE:
                    left += [one, *(Candidate(volume=volume.name) for volume in unit.volumes)]
        return again

    def _time(self, one: Candidate, unit: Unit, suspect: _Suspect, seen: Victim) -> None:
        """A write for it was done: from the first one on its stages are timed."""
        now = self._clock()
        if unit.pod is not None and one.named not in suspect.begun:
            self.numbers.seconds.observe(("detect",), DEBOUNCE)
            self.numbers.seconds.observe(("decide",), max(0.0, seen.missing_for - DEBOUNCE))
            if len(self._replaced) < _MANY:
                self._replaced |= {volume.claim: (suspect.node, now) for volume in unit.volumes}
        suspect.begun.setdefault(one.named, ("detach" if unit.pod is None else "delete", now))

    def _judge(self, unit: Unit, cluster: Cluster, proven: Mapping[str, float]) -> Decision:
        now, seen = self._clock(), cluster.victim
        record = Record.of(self._lease.record if self._lease is not None else "")
        _, forbidden = record.after(seen.node.name, _first_claim(unit), _counted(unit, seen), self._wall(), unit.made_at)
        if now < self._frozen_until:
            forbidden = self._frozen
        allowed = Fact(not forbidden, forbidden or "within all limits", "brakes")
        is_off = powered_off(seen.node, seen.boot_id).holds
        proven_for = {volume.name: float("inf") if is_off else now - proven.get(resource_of(volume.handle), now) for volume in unit.volumes}
        return judge(unit, cluster, proven_for=proven_for, brakes=allowed, acts=self._settings.acts)

    def _proof(self, handle: str, seen: Victim) -> Fact:
        resource = self.snapshot().resources.get(resource_of(handle))
        return either(excluded(resource, self._peer_of(seen.node.name), self._clock()), powered_off(seen.node, seen.boot_id))

    # --- one write ------------------------------------------------------------------------------------------------------------

    async def _do(self, decision: Decision, unit: Unit, seen: Victim, asked_at: float) -> bool:
        """Whether it was done. The act is counted in the Lease first, and then the evidence is looked at once more: nothing is awaited
        between that and the request. Once the Lease is lost, another sidecar's acts may be missing in its record as it was read here."""
        if (lease := self._lease) is None or not lease.is_held or not self._settings.acts:
            return False
        pod = _counted(unit, seen) if decision.step is not Step.TAINT else ""
        after, forbidden = Record.of(lease.record).after(seen.node.name, _first_claim(unit), pod, self._wall(), unit.made_at)
        if forbidden or not isinstance(await lease.hold(record=after.as_text(), now=True), Held):
            return False

        def still() -> bool:
            return self._clock() - asked_at <= FRESH and all(self._proof(volume.handle, seen).holds for volume in unit.proven)

        return still() and await self._write(decision, unit, seen, still)

    async def _write(self, decision: Decision, unit: Unit, seen: Victim, still: Callable[[], bool]) -> bool:
        """`still`: asked once more when the request is sent, which a Retry-After of the API server may hold back for a while."""
        pod, result = unit.pod, "done"
        try:
            match decision.step:
                case Step.TAINT if self._first_time(f"taint {seen.node.uid}"):
                    is_off = powered_off(seen.node, seen.boot_id).holds
                    await self._taint(seen.node, f"{OFF}{seen.boot_id}" if is_off else "peers-took-over", still)
                case Step.EVICT if pod is not None:
                    result = await self._evict(pod, decision.why)
                case Step.DELETE if pod is not None and self._first_time(f"{pod.uid} {seen.node.ready}"):
                    await self._kube.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace_period_seconds=0, is_current=still)
                case Step.DETACH if (one := decision.detach) is not None and self._first_time(one.name):
                    await self._kube.delete(ATTACHMENTS, one.name, uid=one.uid, is_current=still)
                case _:
                    return False
        except Withdrawn:
            self._asked.clear()
            return False
        except NotFound:
            result = "gone"
        except Conflict:
            result = "changed"  # another object has its name by now, or it has changed: it is read again
        except (BadRequest, Forbidden, Invalid) as error:  # by a role or a policy: what else is to be done does not wait for that
            self.numbers.acts.add((decision.step, "refused"))
            for about in (pod,) if pod is not None else unit.proven:
                self._tell_once(about, decision.step, f"it is not failed over: {error}")
            return False
        self.numbers.acts.add((decision.step, result))
        if result in _DONE:
            self._tell(decision, unit, seen)
        return result in _DONE

    def _first_time(self, key: str) -> bool:
        """In the last minute: what comes back, or stays for its finalizers, is not asked for again and again."""
        now = self._clock()
        self._asked = {name: at for name, at in self._asked.items() if now - at < _COMES_BACK}
        return now == self._asked.setdefault(key, now)

    async def _evict(self, pod: Pod, why: str) -> str:
        """With its own grace period. A budget is kept, and told if it refuses for long; whatever else refuses is told at once."""
        answer = await self._evictor.evict(May(pod.namespace, pod.name, pod.uid), why=why)
        self._tools.metrics.evicted(str(answer.result))
        now = self._clock()
        if answer.result is not Result.BUDGET:
            self._refused.pop(pod.uid, None)
        elif len(self._refused) < _MANY and now - self._refused.setdefault(pod.uid, now) < _REFUSED_FOR:
            return str(answer.result)
        if answer.result not in _DONE:
            self._tell_once(pod, answer.result, f"its storage is lost, and it is not evicted: {answer.why}")
        return str(answer.result)

    async def _taint(self, node: Node, value: str | None, still: Callable[[], bool]) -> None:
        """None: it is taken off. On condition of the version: the list of taints is one value."""
        stored = await self._kube.get(NODES, node.name)
        key = names.of_driver(self._settings.driver, names.STORAGE_LOST)
        before = list((stored.get("spec") or {}).get("taints") or ())
        others = [taint for taint in before if taint.get("key") != key]
        if stored["metadata"]["uid"] != node.uid or (len(others) == len(before)) is (value is None):
            return
        if not still():
            raise Withdrawn("the evidence has changed while the Node was read")
        taints = others if value is None else [*others, {"key": key, "value": value, "effect": names.NO_SCHEDULE}]
        meta = {"uid": node.uid, "resourceVersion": stored["metadata"]["resourceVersion"]}
        await self._kube.patch(NODES, node.name, {"metadata": meta, "spec": {"taints": taints}}, content_type=MERGE_PATCH)

    def _lease_of_driver(self) -> HeldLease | None:
        """Another machine under the node's name is another holder."""
        node, settings = self._own_node(), self._settings
        if node is None:
            return None
        holder = Holder(node.name, node.uid, settings.driver, settings.namespace)
        if self._lease is None or self._lease.holder != holder:
            self._lease = HeldLease(
                self._kube,
                names.failover(settings.driver),
                holder,
                label=names.FAILOVER_FOR,
                clock=self._clock,
                wall=self._wall,
                record_key=names.FAILOVER_RECORD,
                duration=LEASE,
                inherits=True,
            )
        return self._lease

    # --- this node's own storage: victim and returner ---------------------------------------------------------------------------

    async def _look_after_own(self) -> None:
        """Nothing is asked while all is well. A resource that is no volume of Kubernetes is nothing of ours, whatever it suffers."""
        due = 0.0
        while True:
            await asyncio.sleep(TICK)
            now, node = self._clock(), self._own_node()
            self._memory.see(self.snapshot(), self._ours, now)
            if node is None or now < due or not (self._memory.bad_since or self._own_taint(node)):
                continue
            try:
                await self._own_storage(node)
            except ApiError as error:
                log.info("This node's own storage could not be looked after", extra={"fields": {"err": str(error)}})
                if isinstance(error, BadRequest | Forbidden | Invalid):
                    self._tell_once(node, "own storage", f"its own storage cannot be looked after: {error}")
            is_ours = (self._ours or frozenset()) & self._memory.bad_since.keys() or self._own_taint(node)
            due = now + (OWN_EVERY if is_ours else IDLE)

    async def _own_storage(self, known: Node) -> None:
        volumes = await self._looks.volumes(lambda resource: resource in self.snapshot().resources)
        self._ours = frozenset(resource_of(volume.handle) for volume in volumes)
        seen = await self._looks.victim(known.name)
        if seen is None:
            return
        node, (pods, grace) = seen.node, await self._looks.local(known.name)
        self._memory.see_pods(pods, self._clock())
        own = Own(self.snapshot(), volumes, pods, self._own_taint(node), seen.boot_id)

        def is_due(act: Act) -> bool:
            """Also by what the storage shows at this moment."""
            return act in decide(replace(own, snapshot=self.snapshot()), self._memory, grace, self._clock())

        for act in decide(own, self._memory, grace, self._clock()):
            self._tools.narrator.note(ROOM, node.name, f"node {node.name}", act)
            if self._settings.acts:
                await self._do_here(act, node, partial(is_due, act))
            else:
                would = f"it is only observed: {type(act).__name__} would be next: {act.why}"
                self._tell_once(node, would, would)

    async def _do_here(self, act: Act, node: Node, still: Callable[[], bool]) -> None:
        """`still`: asked once more when all is read that the act needs."""
        match act:
            case Release(resource, volume, pods, why):
                if not all([await self._may_touch(pod, node) for pod in pods]) or not still():
                    return
                if refused := await self._door.release(resource):
                    why = f"{why}; {refused}"
                self._event(volume, names.VOLUME_RELEASED, f"{resource}: the reader is asked to fail its I/O: {why}")
            case Evict(pod, why):
                if not await self._may_touch(pod, node) or not still():
                    return
                if await self._evict(pod, why) == Result.EVICTED:
                    self._tell_once(pod, "evicted", why, reason=names.POD_FAILED_OVER)
            case AddTaint(value, why):
                await self._taint(node, value, still)
                self._event(node, names.STORAGE_LOST_HERE, why)
            case RemoveTaint(why):
                await self._taint(node, None, still)
                self._event(node, names.STORAGE_BACK, why, names.NORMAL)
        self.numbers.acts.add((type(act).__name__, "asked"))

    async def _may_touch(self, pod: Pod, node: Node) -> bool:
        """Whether it is still here, and nobody says Ignore of it, its claims, their classes or its namespace."""
        candidate, unproven = Candidate(pod.namespace, pod.name, pod.uid), Fact(None, "asked of itself")
        unit = await self._looks.unit(candidate, Victim(node, "", 0.0), lambda *_: unproven)
        return unit is not None and unit.said.word is not Word.IGNORE

    def _own_taint(self, node: Node) -> Taint | None:
        key = names.of_driver(self._settings.driver, names.STORAGE_LOST)
        return next((taint for taint in node.taints if taint.key == key), None)

    # --- telling ----------------------------------------------------------------------------------------------------------------

    def _tell(self, decision: Decision, unit: Unit, seen: Victim) -> None:
        evidence = "; ".join(f"{one.proof.says} ({one.proof.source}, {one.proof.age:.0f} s ago)" for one in unit.proven)
        message = f"{decision.why}; node {seen.node.name} has lost its storage; node {self._settings.node} acts: {evidence}"
        if decision.step is Step.TAINT:
            self._event(seen.node, names.STORAGE_LOST_HERE, message)
        elif decision.detach is not None:
            self._event(decision.detach, names.VOLUME_DETACHED, message)
        elif unit.pod is not None:
            self._tell_once(unit.pod, f"{decision.step} done", message, reason=names.POD_FAILED_OVER)

    def _note(self, one: Candidate, unit: Unit, decision: Decision) -> str:
        """Every decision is shown on the debug page; what stands in the way of one is told once, to whoever looks at the pod."""
        self._tools.narrator.note(ROOM, one.named, f"pod {one.named}" if one.pod else f"volume {one.named}", decision)
        guard = next((guard for guard in decision.guards if not guard.fact.holds), None)
        if unit.pod is not None and guard is not None:
            self._tell_once(unit.pod, guard.name, f"it is not failed over: {guard.fact.says}")
        return guard.name if guard is not None else ""

    def _tell_once(self, about: Pod | PodVolume | Node, what: str, message: str, *, reason: str = names.FAILOVER_BLOCKED) -> None:
        if (about.uid, what) not in self._told:
            self._told = {(about.uid, what)} if len(self._told) > _MANY else self._told | {(about.uid, what)}
            self._event(about, reason, message)

    def _event(self, about: Pod | PodVolume | Volume | Node | Attached, reason: str, message: str, kind: str = names.WARNING) -> None:
        namespace = about.namespace if isinstance(about, Pod) else ""
        version, of = next((version, of) for type_, version, of in _KINDS if isinstance(about, type_))
        self._tools.recorder.record(ObjectRef(version, of, namespace, about.name, about.uid), kind, reason, message[:1000])


def _counted(unit: Unit, seen: Victim) -> str:
    """The uid of its pod, for the brakes; empty: there is none, or nothing of it has ever run. Until a node that is dead is not Ready a pod
    that was made anew may be bound to it once more: that one is replaced again at once."""
    was_bound_to_a_dead_node = not unit.seen and seen.node.ready == TRUE and seen.silent_for >= SILENT
    return "" if unit.pod is None or was_bound_to_a_dead_node else unit.pod.uid


def _first_claim(unit: Unit) -> str:
    return next((volume.claim_uid for volume in unit.proven), "")
