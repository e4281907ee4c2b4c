"""A node that hears claims by their label, on a simulated API server whose policy comes and goes."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.cluster.claim_policy import BINDINGS, POLICIES, written
from hack.sim.cluster.inprocess import Call
from sidecar.kube.api import CLAIMS, MERGE_PATCH, KubeApi
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.kube.errors import ApiError
from sidecar.kube.reflector import Reflector
from sidecar.kube.selected import Selected
from sidecar.kube.store import Store, by_uid
from sidecar.local.claim_hearing_io import ClaimHearing
from sidecar.local.claim_labels import UNLABELLED
from sidecar.model import names
from sidecar.model.objects import Claim, Json, claim_provisioner, selected_node
from tests.harness import samples
from tests.harness.doors import tools
from tests.harness.virtual import AsyncTest, staged

NODE = "n1"
EPOCH = 1_767_225_600.0


class Scene:
    """A cluster with its policy, and a node that keeps unbound claims that are open or its own."""

    def __init__(self, *, node: str = NODE) -> None:
        clock = asyncio.get_running_loop().time
        self.cluster = ApiServer(clock=lambda: EPOCH + clock(), rng=random.Random(3).random)
        self.people = InProcessApi(self.cluster)
        self.failing: ApiError | None = None
        self.events: list[tuple[str, str]] = []
        api = cast(KubeApi, InProcessApi(self.cluster, before=self._asked, watch_for=lambda: 300.0))
        self.tools = tools(api, clock=clock, wall=lambda: EPOCH + clock(), rng=random.Random(1).random)
        self.tools.recorder.record = self._told  # type: ignore[method-assign, assignment]
        self.hearing = ClaimHearing(
            self.tools,
            node=node,
            driver=samples.DRIVER,
            is_ours=lambda name: name == "ours",
            shards=lambda: names.SHARDS,
            contenders=lambda: None,
            bids=True,
            may_be_left=lambda: True,
        )
        self.store: Store[Claim] = Store()
        more: dict[str, Any] = {"project": self._project, "key_of": by_uid, "clock": clock, "rng": random.Random(2).random}
        self.claims: ChangingReflector[Claim] = ChangingReflector(
            api,
            CLAIMS,
            selected=Selected(
                selectors=self.hearing.selectors(),
                place_of=lambda claim: (claim.namespace, claim.name),
                version_of=lambda claim: claim.resource_version,
                is_under_way=lambda uid: False,
            ),
            make=lambda selector, store, on_state: Reflector(
                api,
                CLAIMS,
                store=store,
                label_selector=selector,
                is_silent=selector == UNLABELLED,
                on_change=lambda _: None,
                on_state=on_state,
                **more,
            ),
            store=self.store,
            on_change=lambda _: None,
            on_state=lambda _: None,
            **more,
        )

    async def _asked(self, call: Call) -> None:
        if call.verb == "list" and self.failing is not None:
            raise self.failing

    def _told(self, ref: Any, type_: str, reason: str, message: str, *, once: str = "") -> None:
        self.events.append((reason, ref.name))

    def _project(self, obj: Json) -> Claim | None:
        self.hearing.seen(obj)
        unbound = not obj["spec"].get("volumeName") and selected_node(obj) in ("", NODE)
        return Claim.of(obj) if claim_provisioner(obj) == samples.DRIVER and unbound else None

    @property
    def held(self) -> set[str]:
        return {claim.name for claim in self.store.values()}

    @property
    def by_label(self) -> bool:
        lines = self.tools.metrics.render()[0].decode().splitlines()
        return next(float(line.split()[1]) == 1.0 for line in lines if line.startswith("csi_node_sidecar_claims_by_label "))

    async def policy(self, *, on: bool) -> None:
        for resource, body in zip((POLICIES, BINDINGS), written(), strict=True):
            await (self.people.create(resource, body) if on else self.people.delete(resource, names.CLAIM_POLICY))

    async def make(self, name: str, *, namespace: str = "default") -> None:
        spec = {"storageClassName": "ours", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        await self.people.create(CLAIMS, body, namespace=namespace)

    async def note(self, name: str, *, namespace: str = "default", **notes: str | None) -> None:
        given = {"node": names.SELECTED_NODE, "provisioner": names.STORAGE_PROVISIONER}
        meta = {"annotations": {given[key]: text for key, text in notes.items()}}
        await self.people.patch(CLAIMS, name, {"metadata": meta}, content_type=MERGE_PATCH, namespace=namespace)

    async def late(self, name: str, node: str) -> None:
        await self.make(name)
        await self.note(name, node=node, provisioner=samples.DRIVER)

    async def immediate(self, name: str) -> None:
        await self.make(name)
        await self.note(name, provisioner=samples.DRIVER)


def play(story: AsyncTest, *, policy: bool = True, prepare: AsyncTest | None = None, **options: Any) -> None:
    """`prepare`: what happened before the node's process. Without it all claims are younger, but one."""

    async def main() -> None:
        scene = Scene(**options)
        if policy:
            await scene.policy(on=True)
        await scene.late("before", NODE)
        if prepare is not None:
            await prepare(scene)
        running = asyncio.gather(scene.claims.run(), scene.hearing.run(scene.claims))
        try:
            await asyncio.sleep(20.0)
            await story(scene)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())


def hears(**options: Any) -> Callable[[AsyncTest], Callable[[], None]]:
    """A test of such a scene."""
    return lambda story: staged(lambda each: play(each, **options), story)
