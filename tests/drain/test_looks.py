"""What a running sidecar knows beside its watches: how old it may be, what counts in an outage, what is never overlooked."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster import Call
from sidecar.csi.api import LIST_VOLUMES
from sidecar.drain.assess import assess
from sidecar.drain.driver_list_io import APART, EVERY, PATIENCE, DriverList
from sidecar.drain.look_io import LAST_GOOD, LATELY, MADE_AGAIN_WITHIN, Looks
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.words import Intent, Policy, Status
from sidecar.kube.api import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, VOLUMES, Change
from sidecar.kube.errors import Forbidden, Unavailable
from sidecar.kube.store import Store
from sidecar.local.caches import Caches
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, ClaimRef, Volume
from sidecar.model.topology import Segment
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.drain.own_node import Bench
from tests.harness.drain.samples import CLASS, DRIVER, KEY, NAMESPACE, NODE, claim, class_, content, volume
from tests.harness.virtual import virtual

OUT = Unavailable("no answer in time")


class Sidecar:
    """The looks of one process. What its watches have shown is put into its stores by the test."""

    def __init__(self, bench: Bench, **settings: Any) -> None:
        self.bench, self.caches = bench, Caches.empty()
        self.caches.classes.apply(Change(CLASS, None, class_()))
        self.pods: Store[Any] = Store()
        self.contents: Store[Any] = Store()
        self.driver = ScriptedDriver(info=samples.info(controller=(LIST_VOLUMES,)))
        self.list = DriverList(
            bench.kube,
            self.driver,
            under_way=tuple,
            known=lambda: [volume.handle for volume in self.caches.volumes.values()],
            clock=bench.clock,
        )
        self.list.unknown = ""
        self.begun: set[str] = set()
        self.looks = Looks(
            bench.kube,
            Settings(NODE, DRIVER, NAMESPACE, "1", judges=True, **settings),
            self.caches,
            self.list,
            pods=self.pods,
            contents=self.contents,
            ignorance=tuple,
            segment=Segment(((KEY, NODE),)),
            begun=lambda: self.begun,
            clock=bench.clock,
            wall=bench.wall,
        )
        self.recent = self.looks.recent

    def shows(self, *items: Volume | Claim | Any) -> None:
        for item in items:
            store: Store[Any] = {Volume: self.caches.volumes, Claim: self.caches.claims}.get(type(item), self.pods)
            key = item.name if isinstance(item, Volume) else item.uid
            store.apply(Change(key, store.get(key), item))

    async def look(self, *, drain_expected: bool = False, anew: bool = False) -> Snapshot:
        return await self.looks.look(await self.bench.node(), drain_expected=drain_expected, anew=anew)


async def begun(**settings: Any) -> tuple[Bench, Sidecar]:
    """A node with a volume, its claim, and the claim's namespace."""
    bench = Bench()
    await bench.node()
    await bench.you.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    sidecar = Sidecar(bench, **settings)
    sidecar.shows(volume(), claim(volume_name="pv-0"))
    return bench, sidecar


async def stored(bench: Bench, handle: str, node: str, *, driver: str = DRIVER) -> None:
    """A PersistentVolume of that node, which no watch has shown yet."""
    spec = {"csi": {"driver": driver, "volumeHandle": handle}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    term = {"matchExpressions": [{"key": KEY, "operator": "In", "values": [node]}]}
    spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    await bench.you.create(VOLUMES, {"metadata": {"name": f"pv-{handle}"}, "spec": spec})


# --- how old it may be ------------------------------------------------------------------------------------------------


@virtual
async def test_in_peace_it_lists_every_ten_minutes_while_somebody_drains_every_minute_and_before_a_yes_at_once() -> None:
    bench, sidecar = await begun()
    sidecar.recent.began()
    await asyncio.sleep(LATELY)
    await sidecar.look()
    assert bench.asked() == ["list namespaces", "list pods"]
    for _ in range(9):
        await asyncio.sleep(60)
        await sidecar.look()
    assert bench.asked() == [], "however often it looks"
    await sidecar.look(drain_expected=True)
    assert len(bench.asked()) == 2
    await asyncio.sleep(59)
    await sidecar.look(drain_expected=True)
    assert bench.asked() == []
    await sidecar.look(drain_expected=True, anew=True)
    assert len(bench.asked()) == 2


@virtual
async def test_while_the_api_server_is_away_the_last_good_answer_counts_for_some_minutes_and_for_no_yes() -> None:
    bench, sidecar = await begun()
    assert not (await sidecar.look(drain_expected=True)).ignorance
    bench.refuse = lambda call: OUT if call.verb == "list" else None
    await asyncio.sleep(61)
    assert not (await sidecar.look(drain_expected=True)).ignorance
    tried = len(bench.asked())
    await sidecar.look(drain_expected=True)
    assert (tried > 0, bench.asked()) == (True, []), "it is asked again after some seconds, not with every look"
    assert (await sidecar.look(drain_expected=True, anew=True)).ignorance, "nothing is opened on what was not read a moment ago"
    await asyncio.sleep(LAST_GOOD)
    lost = await sidecar.look(drain_expected=True)
    assert any("namespaces" in line for line in lost.ignorance) and f"namespace {NAMESPACE}" in lost.unread
    bench.refuse = lambda _: None
    await asyncio.sleep(6)
    assert not (await sidecar.look(drain_expected=True)).ignorance


# --- what is never overlooked -----------------------------------------------------------------------------------------


def words(seen: Snapshot) -> set[Policy]:
    """The policies of all volumes for retiring."""
    return {thing.policies[Intent.RETIRE].policy for thing in assess(seen).things if thing.policies}


@virtual
async def test_the_word_of_a_namespace_counts_that_was_not_asked_for_when_the_list_was_made() -> None:
    bench, sidecar = await begun(default_policy=Policy.IGNORE)
    assert words(await sidecar.look()) == {Policy.IGNORE}
    await bench.you.create(NAMESPACES, {"metadata": {"name": "bank", "annotations": {names.DRAIN_POLICY: "Block"}}})
    sidecar.shows(volume("pv-1", namespace="bank"), claim(namespace="bank", volume_name="pv-1"))
    assert words(await sidecar.look()) == {Policy.IGNORE, Policy.BLOCK}


@virtual
async def test_the_word_of_a_class_that_names_no_driver_counts() -> None:
    bench, sidecar = await begun(default_policy=Policy.IGNORE)
    for name, notes, expected in [("first", {}, {Policy.IGNORE}), ("second", {names.DRAIN_POLICY: "Block"}, {Policy.IGNORE, Policy.BLOCK})]:
        await bench.you.create(CLASSES, {"metadata": {"name": name, "annotations": notes}, "provisioner": "kubernetes.io/no-provisioner"})
        sidecar.shows(volume(f"pv-{name}", name, class_name=name), claim(name, volume_name=f"pv-{name}"))
        assert words(await sidecar.look()) == expected


@pytest.mark.parametrize("many", [3, 230], ids=["few", "many"])
@virtual
async def test_every_claim_has_its_say_that_the_watch_saw_before_its_volume(many: int) -> None:
    bench, sidecar = await begun(default_policy=Policy.IGNORE)
    for number in range(many):
        sidecar.shows(volume(f"pv-{number:03}", f"db-{number:03}"))
    last = f"db-{many - 1:03}"
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": CLASS}
    notes = {names.DRAIN_POLICY: "Block"}
    await bench.you.create(CLAIMS, {"metadata": {"name": last, "annotations": notes}, "spec": body}, namespace=NAMESPACE)
    uid = (await bench.you.get(CLAIMS, last, namespace=NAMESPACE))["metadata"]["uid"]
    sidecar.shows(replace(volume(f"pv-{many - 1:03}", last), claim=ClaimRef(uid, NAMESPACE, last)))
    bench.refuse = lambda call: OUT if call.resource == CLAIMS else None
    unread = await sidecar.look()
    assert assess(unread).retire.status is Status.UNKNOWN and f"claim {NAMESPACE}/{last}" in unread.unread
    bench.refuse = lambda _: None
    await asyncio.sleep(6)
    seen = await sidecar.look()
    assert words(seen) == {Policy.IGNORE, Policy.BLOCK} and assess(seen).retire.status is Status.FALSE


@pytest.mark.parametrize(
    ("is_there", "refused", "known", "volumes"),
    [
        pytest.param(True, False, True, ["pv-0", "pv-9"], id="the watch lags"),
        pytest.param(False, False, True, ["pv-0"], id="it is gone, and must not hold the node for ever"),
        pytest.param(True, True, False, ["pv-0"], id="it cannot be read"),
    ],
)
@virtual
async def test_a_claim_that_is_bound_here_to_a_volume_that_no_watch_shows(
    is_there: bool, refused: bool, known: bool, volumes: list[str]
) -> None:
    bench, sidecar = await begun()
    sidecar.shows(claim("data-9", volume_name="pv-9"))
    if is_there:
        await stored(bench, "9", NODE)
    bench.refuse = lambda call: Forbidden("no", status=403) if refused and call.resource == VOLUMES else None
    seen = await sidecar.look()
    assert (not seen.ignorance, sorted(item.name for item in seen.volumes)) == (known, volumes)


@virtual
async def test_a_creation_that_ends_while_lists_are_awaited_is_seen_as_the_one_or_the_other() -> None:
    bench, sidecar = await begun()
    sidecar.shows(claim("new"))
    sidecar.begun = {"uid-apps-new"}

    def ends(call: Call) -> None:
        if call.verb == "list" and call.resource == PODS:
            sidecar.begun = set()
            sidecar.shows(claim("new", volume_name="pv-new"), volume("pv-new", "new"))

    bench.refuse = ends
    seen = await sidecar.look()
    assert ([flight.claim.name for flight in seen.in_flight], sorted(item.name for item in seen.volumes)) == ([], ["pv-0", "pv-new"])


@virtual
async def test_a_pod_without_a_node_is_found_and_its_claim_counts_as_used_after_it() -> None:
    bench, sidecar = await begun()
    sidecar.recent.began()
    await asyncio.sleep(LATELY)
    await sidecar.look()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}]
    waits = {"metadata": {"name": "db-0"}, "spec": {"volumes": volumes, "containers": [{"name": "a", "image": "a"}]}}
    await bench.you.create(PODS, waits, namespace=NAMESPACE)
    seen = await sidecar.look(drain_expected=True, anew=True)
    assert [item.name for item in seen.claimants] == ["db-0"]
    await bench.you.delete(PODS, "db-0", namespace=NAMESPACE)
    seen = await sidecar.look(drain_expected=True, anew=True)
    assert (seen.claimants, seen.own.lately_used) == ((), {f"{NAMESPACE}/data-0"})


@virtual
async def test_a_claim_is_free_a_minute_and_a_half_after_its_last_pod_whenever_the_pods_were_listed_last() -> None:
    for before in range(0, 60, 7):
        _, sidecar = await begun()
        sidecar.recent.began()
        await asyncio.sleep(LATELY)
        await sidecar.look()
        await asyncio.sleep(before)
        await sidecar.look()
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}]
        sidecar.recent.named(Pod.of({"metadata": {"name": "db-0", "namespace": NAMESPACE}, "spec": {"volumes": volumes}}))
        waited = 0.0
        while (await sidecar.look()).own.lately_used:
            await asyncio.sleep(7)
            waited += 7
        assert LATELY <= waited <= LATELY + MADE_AGAIN_WITHIN + 7, before


@virtual
async def test_the_source_of_a_snapshot_that_says_no_node_is_looked_for_in_the_whole_cluster() -> None:
    bench, sidecar = await begun()
    sidecar.contents.apply(Change("s", None, content(managed_by="", source_handle="h9")))
    assert [item.name for item in (await sidecar.look()).unplaced] == ["snap-0"]
    await stored(bench, "h9", "n2")
    assert not (await sidecar.look(drain_expected=True, anew=True)).unplaced


# --- what the driver lists --------------------------------------------------------------------------------------------


@virtual
async def test_a_volume_that_the_driver_lists_and_that_names_a_node_which_is_not_there_leaves_retiring_unknown() -> None:
    """The node may have had that name, and its disks are still in it."""
    bench, sidecar = await begun(default_policy=Policy.IGNORE)
    await bench.you.create(NODES, {"metadata": {"name": "n2", "labels": {KEY: "n2"}}})
    await stored(bench, "old", "n-old")
    await stored(bench, "others", "n2")
    sidecar.list.handles = sidecar.list.elsewhere = frozenset({"old", "others"})
    found = assess(await sidecar.look())
    assert (found.drain.status, found.retire.status) == (Status.TRUE, Status.UNKNOWN)
    assert "pv-old" in found.retire.message and "pv-others" not in found.retire.message


class Lists:
    """A driver's list of volumes, asked beside the looks."""

    def __init__(self, *lists: Any, able: bool = True, under_way: bool = False) -> None:
        self.bench = Bench()
        info = samples.info(controller=(LIST_VOLUMES,) if able else ())
        self.driver = ScriptedDriver(info=info, lists=list(lists) or [("lv-1",)])
        self.woken = 0
        self.list = DriverList(
            self.bench.kube,
            self.driver,
            under_way=lambda: ("claim",) if under_way else (),
            known=lambda: ("mine",),
            clock=self.bench.clock,
            on_found=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    async def run(self, seconds: float) -> None:
        task = asyncio.create_task(self.list.run())
        await asyncio.sleep(seconds)
        task.cancel()


@virtual
async def test_what_has_no_persistent_volume_is_untracked_and_inline_volumes_are_not() -> None:
    scene = Lists(("lv-1", "mine", "theirs", f"csi-{'a' * 64}"))
    for handle in ("mine", "theirs"):
        await stored(scene.bench, handle, "n2", driver=samples.DRIVER)
    assert scene.list.not_listed, "before it was asked, nobody knows that there are none"
    await scene.run(APART + 1)
    found = scene.list
    assert (found.untracked, found.elsewhere, found.unknown, found.not_listed, scene.woken) == (("lv-1",), {"theirs"}, "", "", 1)


@virtual
async def test_a_volume_whose_object_is_stored_within_a_minute_after_the_list_is_not_untracked() -> None:
    scene = Lists(("lv-1",))

    async def store() -> None:
        await asyncio.sleep(APART - 1)
        await stored(scene.bench, "lv-1", NODE, driver=samples.DRIVER)

    await asyncio.gather(scene.run(APART + 1), store())
    assert scene.list.untracked == ()


@virtual
async def test_a_driver_that_fails_makes_retiring_unknown_for_two_minutes_and_counts_then_as_one_that_cannot_list() -> None:
    scene = Lists(OUT)
    await scene.run(PATIENCE - 15)
    assert scene.list.not_listed == scene.list.unknown == str(OUT)
    await scene.run(30)
    assert (scene.list.not_listed, scene.list.unknown) == ("", str(OUT))


@virtual
async def test_after_a_list_that_succeeded_a_failure_keeps_what_it_said_and_is_a_note() -> None:
    scene = Lists(("lv-1",), ("lv-1",), OUT)
    await scene.run(APART + EVERY + 5)
    assert (scene.list.untracked, scene.list.not_listed, bool(scene.list.unknown)) == (("lv-1",), "", True)


@pytest.mark.parametrize(
    ("able", "under_way", "blocks"),
    [
        pytest.param(False, False, False, id="a driver that cannot list"),
        pytest.param(True, True, True, id="a creation is under way, of which the driver may have something"),
    ],
)
@virtual
async def test_when_nobody_asks_the_driver(able: bool, under_way: bool, blocks: bool) -> None:
    scene = Lists(able=able, under_way=under_way)
    await scene.run(1)
    assert (bool(scene.list.not_listed), scene.driver.count("list"), bool(scene.list.unknown)) == (blocks, 0, True)
