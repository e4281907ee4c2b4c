"""Builds and opens this node's gate, with a sign of life (`signing`) for as long as it stands. When it should stand says `gate`."""

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.drain import gate
from sidecar.drain.gate import Build, Clear, GateView, Open, Post, Rest
from sidecar.drain.settings import Settings
from sidecar.drain.signals import Signals
from sidecar.drain.signing import TRUSTED, Sign
from sidecar.drain.words import Status
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, KubeApi, Resource, find
from sidecar.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json

_KINDS: Final = {resource.kind: resource for resource in (BUDGETS, DEPLOYMENTS)}


class Guard:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._budget: Json | None = None
        self._deployment: Json | None = None
        self._read_at: float | None = None
        self._node_uid = ""
        self.may_stand = True
        """An earlier process, with other flags, may have built one."""
        self.sign = Sign(kube, settings, clock=clock, wall=wall)

    async def guard(
        self, node: Node, signals: Signals, *, drain: Status, retire: Status, overridden: bool, pods: Iterable[Pod]
    ) -> gate.Decision:
        """One step. Raises ApiError when it could not be taken."""
        read_at = self._read_at
        try:
            await self._read(node)
        except Forbidden:
            if self._settings.gate:
                raise
            self.may_stand = False  # who may not even look has not built one
            return Rest("the gate is switched off")
        decision = gate.decide(self._view(node, signals, drain, retire, overridden=overridden, pods=pods))
        if isinstance(decision, Clear) and self._read_at == read_at:
            # A guard may have become ready since, and would be torn away from under a drainer that waits for it.
            self._read_at = None
            await self._read(node)
            decision = gate.decide(self._view(node, signals, drain, retire, overridden=overridden, pods=pods))
        stands = isinstance(decision, Build | Clear) or (isinstance(decision, Rest) and self._has_gate())
        if stands:
            await self.sign.give(node, stands=True)
        await self._perform(decision)
        if not stands:
            await self.sign.give(node, stands=False)
        self.may_stand = self._has_gate() or self.sign.may_be_there
        return decision

    @property
    def held(self) -> bool:
        """Whether the gate stands, as far as it is known."""
        return self._budget is not None and self._deployment is not None

    def _has_gate(self) -> bool:
        return self._budget is not None or self._deployment is not None

    def _view(self, node: Node, signals: Signals, drain: Status, retire: Status, *, overridden: bool, pods: Iterable[Pod]) -> GateView:
        settings = self._settings
        return GateView(
            post=Post(node, settings.driver, settings.namespace, settings.gate_image),
            enabled=settings.gate,
            # A drainer lists the pods it has to wait for when it begins: a gate that is built after that holds nobody.
            emptying=True,
            intent=signals.intent,
            drain=drain,
            retire=retire,
            overridden=overridden,
            budget=self._budget,
            deployment=self._deployment,
            guarded=any(gate.guards_among(pods, node.uid, settings.driver, settings.namespace)),
        )

    async def _read(self, node: Node) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < TRUSTED and node.uid == self._node_uid:
            return
        name, namespace = names.guard(node.uid, self._settings.driver), self._settings.namespace
        self._budget = await find(self._kube, BUDGETS, name, namespace=namespace)
        self._deployment = await find(self._kube, DEPLOYMENTS, name, namespace=namespace)
        self._read_at, self._node_uid = now, node.uid

    async def _perform(self, decision: gate.Decision) -> None:
        if self._settings.dry_run:
            return
        match decision:
            case Rest():
                return
            case Build(objects):
                self._read_at = None
                for body in objects:
                    await self._create(body)
            case Clear(objects) | Open(objects):
                self._read_at = None
                for obj in objects:
                    await self._delete(obj)

    async def _create(self, body: Json) -> None:
        resource = _KINDS[body["kind"]]
        try:
            made = await self._kube.create(resource, body, namespace=self._settings.namespace)
        except AlreadyExists:
            return
        self._keep(resource, made)

    async def _delete(self, obj: Json) -> None:
        self._keep(await take_away(self._kube, obj, namespace=self._settings.namespace), None)

    def _keep(self, resource: Resource, obj: Json | None) -> None:
        if resource == BUDGETS:
            self._budget = obj
        else:
            self._deployment = obj


async def take_away(kube: KubeApi, obj: Json, *, namespace: str) -> Resource:
    """Delete a part of a gate, on condition of its uid, and say of which kind it was."""
    # An object as it was read need not say its kind, and whoever edited it may have left little of it.
    resource = DEPLOYMENTS if "template" in obj["spec"] else BUDGETS
    meta = obj["metadata"]
    try:
        await kube.delete(resource, meta["name"], namespace=namespace, uid=meta.get("uid", ""), propagation="Background")
    except (NotFound, Conflict):
        pass  # it is gone, or another one has its name: the next look shows which
    return resource
