"""Creates and deletes this node's gate, and keeps its lease (`gate/lease`) for as long as it stands; when: `gate/rules`."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.facts.announcement import Source
from sidecar.drain.facts.watched import Watched
from sidecar.drain.gate import lease, rules
from sidecar.drain.gate.guard import Post
from sidecar.drain.gate.rebuilding import Rebuilding
from sidecar.drain.gate.rules import Build, Clear, GateView, Open
from sidecar.drain.lease_io import TRUSTED, LeaseWriter, OwnLease
from sidecar.drain.leases import identity
from sidecar.drain.publish.report import GateStatus
from sidecar.drain.refusals_io import URGENT, Refusals
from sidecar.drain.rest import Rest
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Intent, Status
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, KubeApi, Resource, find
from sidecar.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import Recorder
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json

_GATE: Final = "the gate"
_KINDS: Final = {resource.kind: resource for resource in (BUDGETS, DEPLOYMENTS)}


class GateController:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._rebuilding = Rebuilding()
        self._cleared = False
        """What would not hold was deleted, to be built anew."""
        self.delayed = ""
        """Why a gate that should stand is not built yet; empty: it is."""
        self._budget: Json | None = None
        self._deployment: Json | None = None
        self._read_at: float | None = None
        self._node_uid = ""
        self._guarded = False
        """A guard pod was on the node in the last look."""
        self.may_stand = True
        """True at first: an earlier process, with other flags, may have built a gate."""
        writer = LeaseWriter(kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self.lease = OwnLease(writer, clock=clock, wall=wall)

    async def step(self, picture: Picture, pods: Collection[Pod]) -> rules.Decision:
        """Build, repair or open the gate, whichever is due. Raises ApiError if that failed."""
        self._distrust(picture, pods)
        node, read_at = picture.node, self._read_at
        try:
            await self._read(node)
        except Forbidden:
            if self._settings.gate:
                raise
            self.may_stand = False  # who may not even read one has not built one
            return Rest("the gate is switched off")
        view = self._view(picture, pods)
        decision = self._in_time(rules.decide(view))
        if isinstance(decision, Clear) and self._read_at == read_at:
            # What is known may be a minute old: a guard that became ready since must not be deleted under a drainer that waits for it.
            self._read_at = None
            await self._read(node)
            view = self._view(picture, pods)
            decision = self._in_time(rules.decide(view))
        stands = isinstance(decision, Build | Clear) or (isinstance(decision, Rest) and self._has_gate())
        watched = rules.needs_watching(view, stands=stands, before=self.lease.may_be_there)
        if stands:
            await self._keep_lease(node, wanted=True)
        await self._perform(decision)
        if not stands:
            await self._keep_lease(node, wanted=watched)
        self.may_stand = self._has_gate() or self.lease.may_be_there
        return decision

    def _in_time(self, decision: rules.Decision) -> rules.Decision:
        early = self._rebuilding.due - self._clock()
        waits = isinstance(decision, Build | Clear) and early > 0 and not self._cleared
        self.delayed = self._rebuilding.why if waits else ""
        return Rest(self.delayed, self._wall() + early) if waits else decision

    async def _keep_lease(self, node: Node, *, wanted: bool) -> None:
        driver, namespace = self._settings.driver, self._settings.namespace
        terms = lease.terms(node.name, node.uid, driver, namespace=namespace, holder=identity(node.uid, driver))
        await self.lease.keep(terms, wanted=wanted, needed=self._settings.gate)

    @property
    def held(self) -> bool:
        """Whether both objects are there, as far as it is known."""
        return self._budget is not None and self._deployment is not None

    def is_missing(self, picture: Picture, pods: Iterable[Pod]) -> bool:
        """A gate should stand, and as far as it is known one does not."""
        return not self.held and not self._settings.dry_run and rules.wanted(self._view(picture, pods)) is not None

    def _has_gate(self) -> bool:
        return self._budget is not None or self._deployment is not None

    def _view(self, picture: Picture, pods: Iterable[Pod]) -> GateView:
        settings, node, judged = self._settings, picture.node, picture.assessment
        return GateView(
            post=Post(node, settings.driver, settings.namespace, settings.gate_image, settings.gate_assumes),
            enabled=settings.gate,
            draining=picture.signals.draining,
            intent=None if picture.signals.source is Source.CORDON else picture.signals.intent,
            drain=judged.drain.status if judged else Status.UNKNOWN,
            retire=judged.retire.status if judged else Status.UNKNOWN,
            overridden=picture.overridden,
            budget=self._budget,
            deployment=self._deployment,
            holds_volumes=rules.holds_volumes(judged),
            guarded=any(rules.guards_among(pods, node.uid, settings.driver, settings.namespace)),
            assumed=settings.gate_assumes if picture.signals.assumable else Intent.RETIRE,
        )

    def _distrust(self, picture: Picture, pods: Iterable[Pod]) -> None:
        """A guard pod that vanishes is often the first that is seen of a gate's end, by people's hands or by a tool that prunes."""
        guarded = self._view(picture, pods).guarded
        if self._guarded and not guarded:
            self._read_at = None
        self._guarded = guarded

    async def _read(self, node: Node) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < TRUSTED and node.uid == self._node_uid:
            return
        if node.uid != self._node_uid:
            self._rebuilding = Rebuilding()
        name, namespace = names.guard(node.name, node.uid, self._settings.driver), self._settings.namespace
        self._budget = await find(self._kube, BUDGETS, name, namespace=namespace)
        self._deployment = await find(self._kube, DEPLOYMENTS, name, namespace=namespace)
        self._read_at, self._node_uid = now, node.uid

    async def _perform(self, decision: rules.Decision) -> None:
        if self._settings.dry_run:
            return
        match decision:
            case Rest():
                return
            case Build(objects):
                self._read_at = None
                for body in objects:
                    await self._create(body)
                self._rebuilding, self._cleared = self._rebuilding.built(self._clock()), False
            case Clear(objects) | Open(objects):
                self._read_at = None
                self._cleared = isinstance(decision, Clear)
                self._rebuilding = self._rebuilding if self._cleared else Rebuilding()
                for obj in objects:
                    self._keep(await take_away(self._kube, obj, namespace=self._settings.namespace), None)

    async def _create(self, body: Json) -> None:
        resource = _KINDS[body["kind"]]
        try:
            made = await self._kube.create(resource, body, namespace=self._settings.namespace)
        except AlreadyExists:
            return
        self._keep(resource, made)

    def _keep(self, resource: Resource, obj: Json | None) -> None:
        if resource == BUDGETS:
            self._budget = obj
        else:
            self._deployment = obj


class GateDuty:
    """Builds or opens the gate as the verdicts of this look say, and tells on the Node which.

    It also opens a gate that an earlier process with other flags built. Where nothing is judged that is all it does, and nobody is told.
    """

    def __init__(
        self,
        settings: Settings,
        gate: GateController,
        *,
        watched: Watched,
        recorder: Recorder,
        refusals: Refusals,
        wall: Callable[[], float],
    ) -> None:
        self._wall = wall
        self._settings = settings
        self._gate = gate
        self._watched = watched
        self._recorder = recorder
        self._refusals = refusals

    async def perform(self, picture: Picture) -> Outcome:
        node, judged = picture.node, picture.assessment
        if not self._settings.gate and not self._gate.may_stand:
            return Outcome(picture)
        pods = tuple(self._watched.pods.values())
        decision = await self._refusals.attempt(_GATE, self._gate.step(picture, pods))
        if self._gate.lease.failure:
            self._refusals.note("the lease of the gate", self._gate.lease.failure)
        if self._settings.gate:
            picture = replace(picture, notes=replace(picture.notes, gate=self.status(node.name, node.uid)))
        if decision is None or judged is None:
            # Until it stands, whoever drains the node takes its volumes along.
            return Outcome(picture, until=self._wall() + URGENT if decision is None and self._gate.is_missing(picture, pods) else None)
        self._tell(node, decision)
        return Outcome(picture, decision, about=f"gate of {node.name}", until=decision.until if isinstance(decision, Rest) else None)

    def status(self, node: str, node_uid: str) -> GateStatus:
        """For the report and the metrics. A gate whose guard pod does not run holds nobody; one that was refused is not there."""
        if self._gate.held:
            pods, budgets = self._watched.pods.values(), self._watched.budgets.values()
            driver, namespace = self._settings.driver, self._settings.namespace
            name = names.guard(node, node_uid, driver)
            why = rules.why_loose(name, driver, namespace, node_uid=node_uid, pods=pods, budgets=budgets)
            return GateStatus(True, not why, why)
        refused = self._refusals.of(_GATE)
        return GateStatus(True, False, f"it could not be read or written: {refused}" if refused else self._gate.delayed)

    def _tell(self, node: Node, decision: rules.Decision) -> None:
        """That a drain is held is told when one begins (`held_io`): a gate is built in peace."""
        if isinstance(decision, Open) and not self._settings.dry_run:
            ref = ObjectRef("v1", names.NODE, "", node.name, node.uid)
            self._recorder.record(ref, names.NORMAL, names.DRAIN_LET_GO, f"{self._settings.driver}: {decision.why}")


async def take_away(kube: KubeApi, obj: Json, *, namespace: str) -> Resource:
    """Delete one object of a gate, on condition of its uid. Returns its kind."""
    # An object as it was read need not say its kind, and people may have removed other fields: only the Deployment has a template.
    resource = DEPLOYMENTS if "template" in obj["spec"] else BUDGETS
    meta = obj["metadata"]
    try:
        await kube.delete(resource, meta["name"], namespace=namespace, uid=meta.get("uid", ""), propagation="Background")
    except (NotFound, Conflict):
        pass  # it is gone, or another object has its name: the next look shows which
    return resource
