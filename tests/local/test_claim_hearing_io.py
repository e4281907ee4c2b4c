"""What a node hears of claims by their label, on an API server whose policy comes and goes: no claim of the node is missed for long, and
all claims are heard only as long as the labels cannot be trusted."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.cluster.claim_policy import BINDINGS, POLICIES, written
from hack.sim.cluster.inprocess import Call
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, KubeApi
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.kube.reflector import Reflector
from sidecar.kube.selected import Selected
from sidecar.kube.store import Store, by_uid
from sidecar.local.claim_hearing_io import ClaimHearing
from sidecar.local.claim_labels import EVERYTHING, UNLABELLED
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


@hears()
async def test_a_node_hears_its_own_claims_and_open_ones_and_no_others(scene: Scene) -> None:
    await scene.late("own", NODE)
    await scene.late("other", "n2")
    await scene.immediate("open")
    await asyncio.sleep(1.0)
    assert scene.held == {"before", "own", "open"}
    await scene.note("open", node="n2")
    await asyncio.sleep(1.0)
    assert scene.held == {"before", "own"}
    await scene.note("other", node=NODE)
    await asyncio.sleep(1.0)
    assert scene.held == {"before", "own", "other"}
    await asyncio.sleep(7200.0)
    assert scene.by_label
    assert scene.events == []


@hears(policy=False)
async def test_without_a_policy_everything_is_heard_from_the_start(scene: Scene) -> None:
    assert not scene.by_label
    assert scene.claims.selectors == (EVERYTHING,)
    assert scene.held == {"before"}
    assert [reason for reason, _ in scene.events] == [names.CLAIM_LABEL_WRONG]


@hears()
async def test_when_the_policy_goes_new_claims_are_heard_at_once_and_all_claims_within_a_minute(scene: Scene) -> None:
    await scene.make("waits")
    await scene.policy(on=False)
    await scene.late("new", NODE)
    await asyncio.sleep(0.5)
    assert scene.held == {"before", "new"}
    await scene.note("waits", node=NODE, provisioner=samples.DRIVER)
    await asyncio.sleep(10.0)
    assert scene.held == {"before", "new", "waits"}
    assert not scene.by_label
    assert scene.events == [(names.CLAIM_LABEL_WRONG, "new")]


@hears()
async def test_a_claim_of_this_node_with_the_label_of_another_is_found_by_the_list_of_all(scene: Scene) -> None:
    await scene.late("hidden", "n2")
    await scene.policy(on=False)
    await scene.note("hidden", node=NODE)
    await asyncio.sleep(30.0)
    assert scene.held == {"before"}
    await asyncio.sleep(1800.0)
    assert scene.held >= {"before", "hidden"}


@hears()
async def test_when_the_policy_works_again_and_all_labels_are_right_claims_are_heard_by_label_again(scene: Scene) -> None:
    await scene.policy(on=False)
    await scene.late("new", NODE)
    await asyncio.sleep(60.0)
    await scene.policy(on=True)
    await asyncio.sleep(3600.0)
    assert not scene.by_label, "nothing has shown that it works"
    await scene.note("new", node=NODE, provisioner=samples.DRIVER)
    await scene.people.patch(CLAIMS, "new", {}, content_type=MERGE_PATCH, namespace="default")
    await scene.make("proof")
    await asyncio.sleep(10.0)
    assert scene.by_label
    await scene.late("own", NODE)
    await scene.late("other", "n2")
    await asyncio.sleep(1.0)
    assert scene.held == {"before", "new", "own"}
    assert set(scene.claims.selectors) >= {UNLABELLED}


async def made_unlabelled(scene: Scene) -> None:
    await scene.policy(on=False)
    await scene.late("old", NODE)


@hears(prepare=made_unlabelled)
async def test_a_node_that_starts_while_the_policy_is_away_hears_all_claims_soon(scene: Scene) -> None:
    assert not scene.by_label
    assert scene.events == [(names.CLAIM_LABEL_WRONG, "old")]


async def _by_a_policy_that_was_away(scene: Scene, mislabel: Callable[[], Awaitable[None]]) -> None:
    """What it mislabels is older than what shows that the policy works again."""
    await scene.policy(on=False)
    await mislabel()
    await scene.late("shows-it", "n2")
    await asyncio.sleep(60.0)
    await scene.policy(on=True)
    await scene.make("proof")
    await asyncio.sleep(400.0)
    assert scene.by_label


@hears()
async def test_many_hidden_claims_of_one_namespace_hide_neither_each_other_nor_those_of_another(scene: Scene) -> None:
    """All nodes found the same hundred in each list, and nobody ever looked at the others."""
    many = [f"a-{number:03}" for number in range(110)]
    for name in many:
        await scene.make(name)
    await scene.people.create(NAMESPACES, {"metadata": {"name": "other"}})
    await scene.make("one", namespace="other")

    async def mislabel() -> None:
        for name in many:
            await scene.note(name, provisioner=samples.DRIVER)
        await scene.note("one", namespace="other", provisioner=samples.DRIVER)

    await _by_a_policy_that_was_away(scene, mislabel)
    await asyncio.sleep(60.0)
    assert "one" in scene.held
    assert 100 <= len(scene.held) < 110
    await asyncio.sleep(3 * 3600.0)
    assert scene.by_label and scene.held >= {*many, "one"}


@hears()
async def test_a_policy_that_comes_and_goes_leaves_no_claim_unheard(scene: Scene) -> None:
    own = {"before"}
    for number in range(8):
        await scene.policy(on=bool(number % 2))
        await scene.late(f"own-{number}", NODE)
        await scene.late(f"other-{number}", "n2")
        own.add(f"own-{number}")
        await asyncio.sleep(400.0)
        assert scene.held == own


@hears()
async def test_a_list_that_fails_is_tried_again_soon(scene: Scene) -> None:
    await scene.make("waits")
    await scene.policy(on=False)
    scene.failing = Unavailable("away")
    await scene.note("waits", node=NODE, provisioner=samples.DRIVER)
    await asyncio.sleep(1000.0)
    scene.failing = None
    await asyncio.sleep(60.0)
    assert "waits" in scene.held


@hears(node="Not A Name")
async def test_a_node_that_can_be_in_no_label_hears_everything(scene: Scene) -> None:
    assert scene.claims.selectors == (EVERYTHING,)
    assert not scene.by_label
    await scene.immediate("open")
    await asyncio.sleep(1.0)
    assert "open" in scene.held
