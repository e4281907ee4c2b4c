"""Empties a node that is being retired, one pod at a time (`rules`), as long as the evacuation is under way and nobody has undone it.

Just before each eviction the Node is read anew: what a watch shows may be old, and after an undo nothing more is evicted.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.emptying import decisions, rivals, rules
from sidecar.drain.emptying.pauses import Pauses
from sidecar.drain.emptying.rivals import Rivals
from sidecar.drain.evacuation import undone_io
from sidecar.drain.evacuation.rules import AskForSlot, retires, state_after
from sidecar.drain.evacuation.undone_io import Undone
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.lease_io import LeaseWriter
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.rest import Rest
from sidecar.drain.seen_leases import SeenLeases
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.answers import NEXT_PASS, Result
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.kube.api import NODES, PODS, REPLICA_SETS, STATEFUL_SETS, find, records
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json, Owner
from sidecar.tools import Tools

R = TypeVar("R")

_ROOM: Final = "emptying"
_MOST_QUESTIONS: Final = 20
"""About the pods of a namespace or what makes them, in one look. The next one goes on with others."""
_LONGEST_QUESTION: Final = LONGEST_PASS / 4
_GOES_ON_AFTER: Final = 1.0
_CONTROLLERS: Final = MappingProxyType({resource.kind: resource for resource in (STATEFUL_SETS, REPLICA_SETS)})
_WHAT: Final = "the pods of a workload"
_NODES: Final = "the nodes that are being emptied"
_EVICTION: Final = "the eviction of a pod"
_NODE: Final = "the Node, before an eviction"


class _Answers:
    """What one look has asked for and heard: as in `EmptyingView`."""

    def __init__(self, looked: decisions.Looked) -> None:
        self.looked = looked
        self.peers: dict[str, tuple[Pod, ...]] = {}
        self.sizes: dict[str, int | None] = {}
        self.unread: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.rivals: Rivals | None = None


class EmptyingDuty:
    """After `MarksDuty`: what an evacuation lets happen is done when everybody can see the evacuation."""

    def __init__(self, settings: Settings, tools: Tools, refusals: Refusals, *, evictor: Evictor) -> None:
        self._settings = settings
        self._kube = tools.kube
        self._recorder = tools.recorder
        self._metrics = tools.metrics
        self._refusals = refusals
        self._wall = tools.wall
        self._clock = tools.clock
        self._pauses = Pauses(restarted=True)
        self._evictor = evictor
        self._writer = LeaseWriter(tools.kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._seen = SeenLeases()

    async def perform(self, picture: Picture) -> Outcome:
        if not is_under_way(picture.signals, picture) or picture.snapshot is None:
            if picture.signals.state is not State.IN_PROGRESS:
                self._pauses = self._pauses.for_another(asked=picture.signals.state is not None)
            return Outcome(picture)
        if not has_slot(picture):
            return self._told(picture, Rest("whether this node has its slot is not known"))
        if picture.away:
            return self._told(picture, Rest(picture.away))
        try:
            async with asyncio.timeout(LONGEST_PASS):
                decision = await self._decide(picture)
                if not isinstance(decision, decisions.Evict):
                    return self._told(picture, decision, rest=self._rest(decision))
                if self._settings.dry_run:
                    return self._told(picture, Rest(f"a dry run: {decision.pod.full_name} would be evicted, because {decision.why}"))
                wait = max(self._evictor.wait(), self._pauses.for_all(self._clock()))
                if wait > 0:
                    return self._told(picture, Rest(f"{decision.pod.full_name} is evicted in {wait:.0f} s"), rest=wait)
                if undone := await self._undone(picture):
                    return self._told(picture, undone)
        except TimeoutError:
            self._refusals.note(_WHAT, f"no answer within {LONGEST_PASS:g} s")
            return Outcome(picture, until=self._wall() + NEXT_PASS)
        return self._told(picture, decision, rest=await self._evict(decision))

    def put_back(self, pods: Iterable[Pod]) -> frozenset[str]:
        """As `Snapshot.put_back`."""
        return self._pauses.put_back(pods)

    async def _decide(self, picture: Picture) -> decisions.Decision:
        snapshot = picture.snapshot
        assert snapshot is not None
        waiting = (pod for pod in snapshot.claimants if not pod.node)
        self._pauses.see((*snapshot.pods, *waiting), now=self._clock())
        answers = _Answers(rules.look_at(snapshot))
        decision = self._decided(snapshot, answers)
        begun, questions = self._clock(), 0
        while questions < _MOST_QUESTIONS and self._clock() - begun < LONGEST_PASS / 2:
            questions += 1
            match decision:
                case decisions.Ask(namespace):
                    answers.rivals = answers.rivals or await self._refusals.attempt(_NODES, self._rivals())
                    if answers.rivals is None:
                        break
                    await self._ask(namespace, answers.peers, self._pods_of(namespace, answers.versions), answers)
                case decisions.AskController(namespace, owner):
                    await self._ask(decision.workload, answers.sizes, self._size_of(namespace, owner), answers)
                case _:
                    break
            decision = self._decided(snapshot, answers)
        self._pauses.decided(decision, now=self._clock(), patience=snapshot.terminating_too_long)
        return decision

    def _decided(self, snapshot: Snapshot, answers: "_Answers") -> decisions.Decision:
        return rules.decide(
            decisions.EmptyingView(
                snapshot,
                peers=answers.peers,
                sizes=answers.sizes,
                unread=answers.unread,
                versions=answers.versions,
                expected=self._pauses.expected(self._clock()),
                paused=self._pauses.paused(self._clock()),
                waiting_evicted=self._pauses.waiting_evicted,
                rivals=answers.rivals or Rivals(),
                leaving=self._pauses.leaving,
                unanswered=self._pauses.unanswered,
                in_doubt=self._pauses.in_doubt(self._clock()),
                failures=self._pauses.failures,
                slow=self._pauses.slow,
                passed=self._pauses.passed,
                late=self._pauses.late,
                looked=answers.looked,
                ours=self._settings.own_pods,
                reprovisions=self._settings.reprovisions,
            )
        )

    async def _ask(self, about: str, kept: dict[str, R], question: Awaitable[R], answers: "_Answers") -> None:
        """What is refused, or takes long, keeps only those waiting whom it is about."""
        try:
            async with asyncio.timeout(_LONGEST_QUESTION):
                kept[about] = await question
        except ApiError as error:
            answers.unread[about] = str(error)
        except TimeoutError:
            answers.unread[about] = f"no answer within {_LONGEST_QUESTION:g} s"
        if about in answers.unread:
            self._refusals.note(_WHAT, answers.unread[about])

    async def _rivals(self) -> Rivals:
        """Read before the pods: a node that is not among them yet will find this one there when it looks."""
        driver = self._settings.driver
        nodes = [node async for node in records(self._kube, NODES, Node.of, label_selector=rivals.selector(driver))]
        taken = await self._taken()
        return replace(Rivals.of(nodes, driver, seconds=self._pauses.seconds(self._clock())), taken=taken)

    async def _taken(self) -> Mapping[str, str]:
        """As `Rivals.taken`."""
        driver, now = self._settings.driver, self._clock()
        if not self._settings.namespace:
            return {}  # without one nobody makes a replica anew
        found = await self._writer.all(f"{names.REPROVISION_FOR}={driver}")
        self._seen.see(found, now=now)
        return {lease.name: lease.node or lease.holder for lease in found if not self._seen.has_run_out(lease, now=now)}

    async def _pods_of(self, namespace: str, versions: dict[str, str]) -> tuple[Pod, ...]:
        """`versions` receives those of pods without a node."""

        def read(obj: Json) -> Pod:
            pod = Pod.of(obj)
            if not pod.node:
                versions[pod.uid] = obj["metadata"].get("resourceVersion", "")
            return pod

        return tuple([pod async for pod in records(self._kube, PODS, read, namespace=namespace)])

    async def _size_of(self, namespace: str, owner: Owner) -> int | None:
        found = await find(self._kube, _CONTROLLERS[owner.kind], owner.name, namespace=namespace)
        if found is None or found["metadata"].get("uid") != owner.uid:
            return None
        wanted = (found.get("spec") or {}).get("replicas")
        return wanted if isinstance(wanted, int) else 1

    async def _undone(self, picture: Picture) -> Undone | None:
        found = await self._refusals.attempt(_NODE, undone_io.read(self._kube, self._settings, picture, now=self._wall()))
        if found is None:
            return Undone("whether the evacuation goes on could not be read")
        return found if isinstance(found, Undone) else None

    def _rest(self, decision: decisions.Decision) -> float | None:
        """Seconds until the next look although nothing on this node changes; None: as usual."""
        now = self._clock()
        ends = [self._pauses.next_end(now)]
        match decision:
            case decisions.Ask(again=True) | decisions.AskController(again=True):
                # All have been asked about in vain, so this is as if one look had done that.
                ends.append(self._pauses.until_replica(now))
            case decisions.Ask() | decisions.AskController():
                ends.append(_GOES_ON_AFTER)
            case decisions.Hold(Hindrance.REPLICA_NOT_READY):
                ends.append(self._pauses.until_replica(now))
            case decisions.Hold(Hindrance.POD_LEAVING):
                ends.append(NEXT_PASS)
            case _:
                pass
        return min((end for end in ends if end is not None), default=None)

    async def _evict(self, decision: decisions.Evict) -> float:
        """Seconds until something may be done again; a pod that leaves wakes the room sooner."""
        answer = await self._evictor.evict(decision.pod, why=f"node {self._settings.node} is being retired: {decision.why}")
        self._metrics.evicted(str(answer.result))
        self._pauses.note(decision, answer, now=self._clock())
        if answer.result is Result.EVICTED:
            self._tell(decision)
        elif not answer.is_expected:
            self._refusals.note(_EVICTION, answer.why)
        return answer.again or NEXT_PASS

    def _tell(self, decision: decisions.Evict) -> None:
        pod = decision.pod
        message = f"Evicted, because node {self._settings.node} is being retired: {decision.why}"
        self._recorder.record(ObjectRef("v1", names.POD, pod.namespace, pod.name, pod.uid), names.NORMAL, names.POD_EVICTED, message)

    def _told(self, picture: Picture, decision: object, *, rest: float | None = None) -> Outcome:
        return Outcome(picture, decision, about=_ROOM, until=None if rest is None else self._wall() + rest)


def has_slot(picture: Picture) -> bool:
    """And this look has seen that: others may have taken one that could not be read or renewed."""
    return is_under_way(picture.signals, picture) and not isinstance(picture.evacuation, AskForSlot)


def stands_aside(picture: Picture) -> bool:
    """Others have the slot, because nobody but a person can help, as far as is known."""
    return state_after(picture.evacuation, picture.signals.state) is State.BLOCKED and retires(picture.signals)


def is_under_way(signals: Signals, picture: Picture) -> bool:
    """The evacuation is noted as in progress, this look goes on with it, and it is to retire the node."""
    goes_on = state_after(picture.evacuation, signals.state) is State.IN_PROGRESS
    return goes_on and signals.state is State.IN_PROGRESS and retires(signals)
