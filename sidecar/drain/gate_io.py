"""Builds and opens this node's gate, and says whether it holds; when it stands and what it consists of: `gate`."""

import math
from collections.abc import Callable, Collection
from typing import Final

from sidecar.drain import gate
from sidecar.drain.gate import Build, Clear, GateView, Leave, Open
from sidecar.drain.node_io import Picture
from sidecar.drain.settings import Settings
from sidecar.engine.backoff import Backoff
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, KubeApi, Resource, find
from sidecar.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json

TRUSTED: Final = 60.0  # seconds for which it counts what was read of the gate: nobody watches it, and somebody may have changed it
_BACKOFF: Final = Backoff(2.0, 60.0)
_STEADY: Final = 600.0  # seconds: a gate that has stood for so long is none that is taken away each time


class Gate:
    """One per process. Raises ApiError."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float]) -> None:
        self._kube, self._settings, self._clock = kube, settings, clock
        self._stored: dict[Resource, Json | None] = {}  # its objects, as they were read last or changed since
        self._read_at: float | None = None
        self._uid = ""
        self._guarded = False  # a guard pod was on the node in the last look
        self._built: tuple[int, float] = 0, -math.inf
        """How often it was built in a row, each time soon after the time before, and when last: a tool that prunes it each time must not
        have every node write as fast as it looks."""
        self._cleared = False
        self._may_stand = True

    @property
    def stands(self) -> bool:
        """Whether both objects are there, as far as it is known."""
        return bool(self._stored) and None not in self._stored.values()

    async def update(self, picture: Picture, pods: Collection[Pod], *, overridden: bool) -> gate.Decision:
        """Build, repair or open the gate, whichever is due."""
        if not self._settings.gate:
            await self.take_down(picture.node)
            return Leave("the gate is switched off")
        node = picture.node
        guarded = bool(gate.guards_among(pods, node.uid, self._settings.driver, self._settings.namespace))
        if self._guarded and not guarded:
            self._read_at = None  # that the guard vanishes is often the first that is seen of a gate's end by others' hands
        self._guarded = guarded
        judged, marks, read_at = picture.assessment, picture.marks, self._read_at
        while True:
            await self._read(node)
            view = GateView(
                node=node,
                settings=self._settings,
                draining=marks.draining,
                verdict=gate.verdict_of(judged, gate.counting(marks, self._settings.gate_assumes)),
                holds_volumes=judged.holds_volumes,
                overridden=overridden,
                budget=self._stored.get(BUDGETS),
                deployment=self._stored.get(DEPLOYMENTS),
                guarded=guarded,
            )
            decision = gate.decide(view)
            if not isinstance(decision, Clear) or self._read_at != read_at:
                break
            # What is known may be a minute old: a guard that became ready since must not be deleted under a drainer that waits for it.
            self._read_at = read_at = None
        times, at = self._built
        early = at + _BACKOFF.delay(times - 2) - self._clock() if times >= 2 else 0.0
        if isinstance(decision, Build | Clear) and early > 0 and not self._cleared:
            return Leave(f"somebody takes the gate away or changes it again and again: it was built {times} times")
        if not self._settings.dry_run:
            await self._perform(decision)
        return decision

    async def take_down(self, node: Node) -> None:
        """What an earlier process, with other flags, has built. Who may not even read one has not built one."""
        if self._may_stand and self._settings.namespace and not self._settings.dry_run:
            try:
                await find(self._kube, BUDGETS, names.guard(node.name, node.uid, self._settings.driver), namespace=self._settings.namespace)
            except Forbidden:
                self._may_stand = False
                return
            await open_gate(self._kube, node, self._settings.driver, namespace=self._settings.namespace)
            self._may_stand = False

    def why_loose(self, picture: Picture, pods: Collection[Pod]) -> str:
        """Why a gate that stands holds nobody; empty: it holds."""
        guards = gate.guards_among(pods, picture.node.uid, self._settings.driver, self._settings.namespace)
        return "" if any(pod.ready for pod in guards) else "its guard pod is not ready, so it holds nobody yet"

    async def _read(self, node: Node) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < TRUSTED and node.uid == self._uid:
            return
        if node.uid != self._uid:
            self._built, self._uid = (0, -math.inf), node.uid
        name, namespace = names.guard(node.name, node.uid, self._settings.driver), self._settings.namespace
        self._stored = {kind: await find(self._kube, kind, name, namespace=namespace) for kind in (BUDGETS, DEPLOYMENTS)}
        self._read_at = now

    async def _perform(self, decision: gate.Decision) -> None:
        match decision:
            case Leave():
                return
            case Build(objects):
                self._read_at, now = None, self._clock()
                for body in objects:
                    resource = BUDGETS if body["kind"] == BUDGETS.kind else DEPLOYMENTS
                    try:
                        self._stored[resource] = await self._kube.create(resource, body, namespace=self._settings.namespace)
                    except AlreadyExists:
                        continue
                times, at = self._built
                self._built, self._cleared = (times + 1 if now - at < _STEADY else 1, now), False
            case Clear(objects) | Open(objects):
                self._read_at, self._cleared = None, isinstance(decision, Clear)
                if not self._cleared:
                    self._built = 0, -math.inf
                for obj in objects:
                    self._stored[await _take_away(self._kube, obj, namespace=self._settings.namespace)] = None


async def open_gate(kube: KubeApi, node: Node, driver: str, *, namespace: str) -> bool:
    """That of another node. Whether there was one."""
    name = names.guard(node.name, node.uid, driver)
    found = [obj for resource in (BUDGETS, DEPLOYMENTS) if (obj := await find(kube, resource, name, namespace=namespace)) is not None]
    for obj in found:
        await _take_away(kube, obj, namespace=namespace)
    return bool(found)


async def _take_away(kube: KubeApi, obj: Json, *, namespace: str) -> Resource:
    """On condition of its uid. Returns its kind: of an object as it was read only the Deployment has a template."""
    resource = DEPLOYMENTS if "template" in obj["spec"] else BUDGETS
    meta = obj["metadata"]
    try:
        await kube.delete(resource, meta["name"], namespace=namespace, uid=meta.get("uid", ""), propagation="Background")
    except (NotFound, Conflict):
        pass  # it is gone, or another object has its name: the next look shows which
    return resource
