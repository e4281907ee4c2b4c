"""Builds and opens this node's gate. When it should stand says `gate`."""

from collections.abc import Callable
from typing import Final

from sidecar.drain import gate
from sidecar.drain.gate import Build, Clear, GateView, Open, Post, Rest
from sidecar.drain.settings import Settings
from sidecar.drain.signals import Signals
from sidecar.drain.words import Status
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, KubeApi, Resource
from sidecar.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

_KINDS: Final = {resource.kind: resource for resource in (BUDGETS, DEPLOYMENTS)}
# How old what is known of the two objects may be: somebody may have deleted or changed them.
_TRUSTED: Final = 60.0


class Guard:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._budget: Json | None = None
        self._deployment: Json | None = None
        self._read_at: float | None = None
        self._node_uid = ""
        self.held = False
        """Whether the gate stands, as far as it is known."""
        self.may_stand = True
        """An earlier process, with other flags, may have built one."""

    async def guard(self, node: Node, signals: Signals, *, drain: Status, retire: Status, overridden: bool) -> gate.Decision:
        """One step. Raises ApiError when it could not be taken."""
        try:
            await self._read(node)
        except Forbidden:
            if self._settings.gate:
                raise
            self.may_stand = False  # who may not even look has not built one
            return Rest("the gate is switched off")
        decision = gate.decide(self._view(node, signals, drain, retire, overridden=overridden))
        await self._perform(decision)
        self.held = self._budget is not None
        self.may_stand = self.held or self._deployment is not None
        return decision

    def _view(self, node: Node, signals: Signals, drain: Status, retire: Status, *, overridden: bool) -> GateView:
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
        )

    async def _read(self, node: Node) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < _TRUSTED and node.uid == self._node_uid:
            return
        name = names.guard(node.uid, self._settings.driver)
        self._budget, self._deployment = await self._get(BUDGETS, name), await self._get(DEPLOYMENTS, name)
        self._read_at, self._node_uid = now, node.uid

    async def _get(self, resource: Resource, name: str) -> Json | None:
        try:
            return await self._kube.get(resource, name, namespace=self._settings.namespace)
        except NotFound:
            return None

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
        # An object as it was read need not say its kind.
        resource = BUDGETS if "minAvailable" in obj["spec"] else DEPLOYMENTS
        meta = obj["metadata"]
        try:
            await self._kube.delete(
                resource, meta["name"], namespace=self._settings.namespace, uid=meta.get("uid", ""), propagation="Background"
            )
        except (NotFound, Conflict):
            pass  # it is gone, or another one has its name: the next look shows which
        self._keep(resource, None)

    def _keep(self, resource: Resource, obj: Json | None) -> None:
        if resource == BUDGETS:
            self._budget = obj
        else:
            self._deployment = obj
