"""`--provisioning=false`: drain decisions as ever, and claims, volumes and capacity of the driver left to whoever provisions for it.

Each scene is played twice, with and without the flag, so that what is left alone is known to be something that would be acted on.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, Call, InProcessApi
from hack.sim.cluster.reading import Query
from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_VOLUME, GET_CAPACITY, DriverInfo
from sidecar.doors import Doors, Instruments
from sidecar.engine.health import OK
from sidecar.kube import api
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, DRAIN_REPORTS, EVENTS, LEASES, MERGE_PATCH, NODES, VOLUMES, Resource
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.report_only import ReportOnly
from sidecar.start import load_rooms
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.config import parsed
from tests.harness.doors import ScriptedDriver

ALL_CAPABLE = samples.info(controller=(CREATE_DELETE_VOLUME, GET_CAPACITY, CLONE_VOLUME))
NODE_ONLY = samples.info(controller=())
JUDGING = ("--drain-report", "--node-drain-policy=Evacuate", "--drain-autoscaler-annotations")
HURRY = ("--node-deployment-base-delay=0s", "--node-deployment-max-delay=0s", "--volume-name-prefix=test", "--volume-name-uuid-length=5")
CAPACITY = ("--enable-capacity", "--capacity-ownerref-level=-1")
AN_HOUR = 3600.0


class Scene:
    """One node in a cluster, and what somebody has asked this driver for."""

    def __init__(self, folder: Path, info: DriverInfo = ALL_CAPABLE) -> None:
        loop = asyncio.get_running_loop()
        self.cluster = ApiServer(clock=loop.time, rng=random.Random(1).random)
        self.driver = ScriptedDriver(info)
        self.calls: list[Call] = []
        self.folder = folder
        self.unfinished = 0
        node = {"metadata": {"name": samples.NODE, "labels": {samples.KEY: samples.NODE, names.HOSTNAME: samples.NODE}}}
        self.make(NODES, {**node, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        for name, binding in (("late", "WaitForFirstConsumer"), ("now", "Immediate")):
            self.make(CLASSES, samples.class_json(metadata={"name": name}, volumeBindingMode=binding))

    def make(self, resource: Resource, obj: Json, *, namespace: str = "") -> Json:
        meta = {key: value for key, value in obj["metadata"].items() if key not in ("uid", "resourceVersion")}
        stored = self.cluster.create(resource, {**obj, "metadata": meta}, namespace=namespace).obj
        if status := obj.get("status"):
            stored = self.cluster.patch(
                resource, meta["name"], {"status": status}, content_type=MERGE_PATCH, namespace=namespace, subresource="status"
            ).obj
        return stored

    def claim(self, name: str, class_: str, *, selected: str = "", **spec: Any) -> Json:
        notes = {names.SELECTED_NODE: selected} if selected else {}
        obj = samples.claim_json(meta={"name": name, "namespace": "default"}, annotations=notes, storageClassName=class_, **spec)
        return self.make(CLAIMS, obj, namespace="default")

    def volume(self, name: str, **changes: Any) -> Json:
        return self.make(VOLUMES, samples.volume_json(meta={"name": name}, **changes))

    def take_away(self, name: str) -> None:
        """A claim and its volume, as those who deleted them leave it."""
        for resource, namespace in ((CLAIMS, "default"), (VOLUMES, "")):
            free = {"metadata": {"finalizers": None}}
            self.cluster.patch(resource, name, free, content_type=MERGE_PATCH, namespace=namespace)
            self.cluster.delete(resource, name, namespace=namespace)

    def of(self, resource: Resource) -> list[Json]:
        return [item.obj for item in self.cluster.list(resource, Query()).items]

    def versions(self, *resources: Resource) -> dict[str, str]:
        return {f"{one.plural}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for one in resources for obj in self.of(one)}

    def writes(self) -> set[tuple[str, str]]:
        return {(call.verb, str(getattr(call.resource, "plural", call.resource))) for call in self.calls} - READS

    async def run(self, *args: str, seconds: float = AN_HOUR, then: Callable[[Any], None] = lambda _: None) -> None:
        """The program that these flags ask for."""
        environ = {"NODE_NAME": samples.NODE, "NAMESPACE": "default"}
        config = parsed(f"--csi-address={self.folder}/csi.sock", *args, environ=environ).config
        load_rooms(config)

        async def noted(call: Call) -> None:
            self.calls.append(call)

        door = InProcessApi(self.cluster, before=noted)
        loop = asyncio.get_running_loop()
        self.instruments = Instruments(clock=loop.time, wall=loop.time, rng=random.Random(2).random)
        doors, recorder = Doors(door, door, self.driver), EventRecorder(door, component="test")
        program = (
            Sidecar(config, doors, self.instruments, recorder=recorder)
            if config.provisioning
            else ReportOnly(config, doors, self.instruments, recorder=recorder, journals=self)
        )
        task = asyncio.create_task(program.run())
        await asyncio.sleep(seconds)
        assert not task.done(), task
        then(program)
        await program.drain(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def count(self, driver: str) -> int:
        """Of the creations in journals."""
        return self.unfinished

    def condition(self, kind: str) -> str:
        (node,) = self.of(NODES)
        wanted = names.condition(samples.DRIVER, kind)
        return next((item["status"] for item in node["status"]["conditions"] if item["type"] == wanted), "")


RESOURCES = [one for one in vars(api).values() if isinstance(one, Resource)]
READS = {(verb, one.plural) for verb in ("get", "list", "watch") for one in RESOURCES}


def play(story: Callable[[], Any]) -> Any:
    return run_virtual(story())


# --- left alone, and acted on otherwise ---------------------------------------------------------------------------------


def leaving_source(scene: Scene) -> None:
    scene.volume("source", status={"phase": "Bound"})
    scene.claim("source", "late", volumeName="source")
    scene.cluster.patch(
        CLAIMS, "source", {"metadata": {"finalizers": [names.CLONE_FINALIZER]}}, content_type=MERGE_PATCH, namespace="default"
    )
    scene.cluster.delete(CLAIMS, "source", namespace="default")


ASKED: dict[str, Callable[[Scene], Any]] = {
    "a claim for which this node is selected": lambda scene: scene.claim("late", "late", selected=samples.NODE),
    "an Immediate claim": lambda scene: scene.claim("now", "now"),
    "a Released volume": lambda scene: scene.volume("gone", status={"phase": "Released"}),
    "a Bound volume without the finalizer": lambda scene: scene.volume("bound", status={"phase": "Bound"}),
    "a volume made here that is deleted": lambda scene: scene.cluster.delete(
        VOLUMES, scene.volume("leaving", status={"phase": "Released"})["metadata"]["name"]
    ),
    "a clone's source that is deleted": leaving_source,
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
@pytest.mark.parametrize("provisions", [True, False], ids=["provisioning", "report only"])
def test_what_is_asked_of_the_driver_is_left_to_others(tmp_path: Path, ask: Callable[[Scene], Any], provisions: bool) -> None:
    async def story() -> None:
        scene = Scene(tmp_path)
        ask(scene)
        before = scene.versions(CLAIMS, VOLUMES)
        await scene.run(*JUDGING, *((*HURRY, *CAPACITY) if provisions else ("--provisioning=false",)))
        acted = bool(scene.driver.asked) or scene.versions(CLAIMS, VOLUMES) != before
        assert acted is provisions
        assert bool(scene.of(CAPACITIES)) is provisions
        if not provisions:
            about = {event["involvedObject"]["kind"] for event in scene.of(EVENTS)}
            assert about <= {"Node"}, "no provisioning events"
            allowed = {("patch", NODES.plural), ("create", DRAIN_REPORTS.plural), ("patch", DRAIN_REPORTS.plural)}
            looker = {(verb, LEASES.plural) for verb in ("create", "update")}
            assert scene.writes() <= allowed | looker | {(verb, EVENTS.plural) for verb in ("create", "patch")}

    play(story)


# --- what drain decides -------------------------------------------------------------------------------------------------

CENTRAL = {
    "csi": {"driver": samples.DRIVER, "volumeHandle": "h", "volumeAttributes": {names.PROVISIONER_IDENTITY: f"1-2-{samples.DRIVER}"}}
}
LOCAL = {
    "csi": {**CENTRAL["csi"], "volumeAttributes": {names.PROVISIONER_IDENTITY: f"1-2-{samples.DRIVER}-{samples.NODE}"}},
    "nodeAffinity": None,
}


def on(node: str) -> Json:
    return {**CENTRAL, "nodeAffinity": samples.placed(node)}


def bound(scene: Scene, spec: Json, **meta: Json) -> None:
    claim = scene.claim("data", "late", volumeName="data")
    ref = {"namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
    obj = samples.volume_json(meta={"name": "data"}, spec={**spec, "claimRef": ref, "storageClassName": "late"}, status={"phase": "Bound"})
    obj["metadata"] |= {"labels": {}, **meta}
    scene.make(VOLUMES, obj)


HELD: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "nothing": (lambda _: None, "True"),
    "one that a central provisioner made here": (lambda scene: bound(scene, on(samples.NODE)), "False"),
    "one that it made elsewhere": (lambda scene: bound(scene, on("bar")), "True"),
    "one that a provisioner of this node made, without affinity": (lambda scene: bound(scene, LOCAL), "False"),
    "one that somebody is making": (lambda scene: scene.claim("new", "late", selected=samples.NODE), "False"),
}


@pytest.mark.parametrize(("make", "verdict"), HELD.values(), ids=HELD.keys())
def test_volumes_that_others_made_decide(tmp_path: Path, make: Callable[[Scene], Any], verdict: str) -> None:
    """Whether the driver serves its node service alone, a controller beside it, or topology by its controller alone."""

    async def story(info: DriverInfo) -> None:
        scene = Scene(tmp_path, info)
        make(scene)
        await scene.run(*JUDGING, "--provisioning=false", seconds=60.0)
        assert scene.condition(names.RETIRE_READY) == verdict
        assert scene.of(DRAIN_REPORTS)
        assert not scene.driver.asked

    for info in (NODE_ONLY, ALL_CAPABLE, samples.info(controller=(), topology=False)):
        play(lambda info=info: story(info))


@pytest.mark.parametrize("labels", [{}, {names.VOLUME_NODE: "bar"}], ids=["no label", "another node's label"])
def test_a_change_is_heard(tmp_path: Path, labels: Json) -> None:
    """A backup that is restored brings the label with it, and no provisioner of this node ever corrects it."""

    async def story() -> None:
        scene = Scene(tmp_path, NODE_ONLY)
        task = asyncio.create_task(scene.run(*JUDGING, "--provisioning=false", seconds=300.0))
        await asyncio.sleep(60.0)
        assert scene.condition(names.RETIRE_READY) == "True"
        bound(scene, on(samples.NODE), labels=labels)
        await asyncio.sleep(30.0)
        assert scene.condition(names.RETIRE_READY) == "False"
        scene.take_away("data")
        await asyncio.sleep(90.0)
        assert scene.condition(names.RETIRE_READY) == "True"
        await task

    play(story)


NOWHERE: Json = {**CENTRAL, "nodeAffinity": None}
GIVEN_UP = {"annotations": {names.DRAIN_POLICY: "Ignore"}}


def may_be_lost(scene: Scene) -> None:
    """As its class says."""
    scene.cluster.patch(CLASSES, "late", {"metadata": GIVEN_UP}, content_type=MERGE_PATCH)
    bound(scene, NOWHERE)


def strict(scene: Scene) -> None:
    bound(scene, NOWHERE, **GIVEN_UP)
    word = {"metadata": {"annotations": {names.DRAIN_POLICY: "Block"}}}
    scene.cluster.patch(CLAIMS, "data", word, content_type=MERGE_PATCH, namespace="default")


def lacking_a_label(scene: Scene) -> None:
    """Its affinity names this node, and beside it a label that somebody took off the Node."""
    spec = on(samples.NODE)
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    term["matchExpressions"].append({"key": "example.com/row", "operator": "In", "values": ["2"]})
    bound(scene, spec)


OF_BAR = {**CENTRAL["csi"], "volumeAttributes": {names.PROVISIONER_IDENTITY: f"1-2-{samples.DRIVER}-bar"}}
UNPLACED: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "nothing says where it is": (lambda scene: bound(scene, NOWHERE), "Unknown"),
    "it may be lost": (may_be_lost, "True"),
    "its tenant wants it kept": (strict, "Unknown"),
    "a label was taken off the node": (lacking_a_label, "Unknown"),
    "a node made it, another one": (lambda scene: bound(scene, {**NOWHERE, "csi": OF_BAR}), "True"),
    "it is another driver's": (lambda scene: bound(scene, {**NOWHERE, "csi": {**OF_BAR, "driver": "other.example.com"}}), "True"),
}


@pytest.mark.parametrize(("make", "verdict"), UNPLACED.values(), ids=UNPLACED.keys())
def test_a_node_is_not_said_to_be_empty_while_nobody_knows_where_a_volume_is(
    tmp_path: Path, make: Callable[[Scene], Any], verdict: str
) -> None:
    """A central provisioner notes no maker: of a volume without node affinity nothing tells where it is.

    The rule has more rows, in tests/drain/test_judgement.py; here its words arrive: those of classes, claims and other programs.
    """

    async def story() -> None:
        scene = Scene(tmp_path, NODE_ONLY)
        make(scene)
        await scene.run(*JUDGING, "--provisioning=false", seconds=60.0)
        assert scene.condition(names.RETIRE_READY) == verdict
        assert scene.condition(names.DRAIN_READY) == ("True" if verdict == "Unknown" else scene.condition(names.DRAIN_READY))
        (report,) = scene.of(DRAIN_REPORTS)
        assert ("may be on this node" in report["status"]["verdicts"]["retire"]["message"]) is (verdict == "Unknown")

    play(story)


@pytest.mark.parametrize("topology", [True, False], ids=["topology", "topology said by its controller alone"])
def test_only_what_drain_needs_is_kept_and_health_knows_no_journal(tmp_path: Path, topology: bool) -> None:
    async def story() -> None:
        scene = Scene(tmp_path, samples.info(controller=(), topology=topology))
        bound(scene, on(samples.NODE))
        for name, selected in (("open", ""), ("here", samples.NODE), ("there", "bar")):
            scene.claim(name, "now", selected=selected)
        scene.volume("elsewhere", spec=on("bar"), status={"phase": "Bound"})
        scene.make(CLASSES, samples.class_json(metadata={"name": "foreign"}, provisioner="other.example"))

        def look(program: ReportOnly) -> None:
            assert {claim.name for claim in program.caches.claims.values()} <= {"data", "here"}
            assert program.caches.volumes.keys() == ["data"]
            assert set(program.caches.classes.keys()) == {"late", "now"}
            assert set(program.queues()) == {"drain"}
            scopes = {row.path: row.state for row in scene.instruments.health.rows()}
            assert not [name for name in scopes if "journal" in name or "rights" in name]
            assert all(scopes[f"caches/{one.plural}"] == OK() for one in (CLAIMS, VOLUMES, CLASSES)), scopes

        await scene.run(*JUDGING, "--provisioning=false", seconds=60.0, then=look)
        assert [lease["metadata"]["name"] for lease in scene.of(LEASES)] == [names.watch(samples.DRIVER)]
        asked = {str(call.resource) for call in scene.calls}
        assert not [one for one in asked if "csinodes" in one or "selfsubject" in one or "volumeattachments" in one], asked

    play(story)


# --- what an earlier process left ---------------------------------------------------------------------------------------


def test_what_is_left_is_told_in_one_line_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def lines() -> list[Any]:
        return [record for record in caplog.records if "left of it" in record.getMessage()]

    async def story() -> None:
        scene = Scene(tmp_path)
        bound(scene, LOCAL)
        scene.cluster.patch(VOLUMES, "data", {"metadata": {"finalizers": [names.VOLUME_FINALIZER]}}, content_type=MERGE_PATCH)
        await scene.run(*HURRY, *CAPACITY, "--drain-report", seconds=60.0)
        figures = scene.versions(CAPACITIES, VOLUMES)
        assert scene.of(CAPACITIES) and not lines()
        for _ in range(2):  # and again at each start
            await scene.run("--drain-report", "--provisioning=false", seconds=120.0)
        assert scene.versions(CAPACITIES, VOLUMES) == figures
        assert len(lines()) == 2
        told = lines()[0].fields
        assert (told["capacity_objects"], told["volumes"], told["creations"]) == (len(scene.of(CAPACITIES)), 1, 0)
        assert f"{names.CAPACITY_MANAGER_LABEL}={names.capacity_manager(samples.NODE)}" in told["remedy"]
        await scene.run(*HURRY, *CAPACITY, "--drain-report", seconds=120.0)
        assert scene.versions(CAPACITIES).keys() == {key for key in figures if key.startswith(CAPACITIES.plural)}, "they are found again"

    play(story)
