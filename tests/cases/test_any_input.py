"""Whatever class, claim, driver and API server come up with: the room does not crash, says what to change, and leaks no volume.

The driver has volumes, and makes one when it says so, or when it leaves open whether it did. It is idempotent by name.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.csi.api import NOTHING, CreatedVolume, CreateRequest
from sidecar.csi.outcome import BadAnswer, Code, DriverError, NotSent
from sidecar.kube.api import Change
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment
from tests.harness import samples
from tests.harness.provisioning.bench import UID
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import (
    ABLE,
    DEFAULT_NAME,
    DEFAULT_NAMESPACE,
    NAME,
    NAMESPACE,
    OLD_NAME,
    OLD_NAMESPACE,
    PREFIX,
    Json,
    KeepingKube,
    OpenDriver,
    Room,
    secret,
)
from tests.harness.provisioning.sources import FAR, FROM_CLAIM, FROM_SNAPSHOT, fill, world

# With these a driver leaves open whether there is a volume.
_OPEN = (
    Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED, Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS,
)  # fmt: skip
_FINAL = tuple(code for code in Code if code not in (Code.OK, *_OPEN))
_LONGEST = 300.0
_LONGEST_FOR_A_SOURCE = 60.0 * 2**5 * 1.5  # of one that does not fit: whoever owns the claim has to change something
_FAR = Segment.of({samples.KEY: "bar"})


@dataclass(frozen=True)
class Answer:
    """How the driver answers one CreateVolume."""

    kind: str = "ok"
    code: Code = Code.OK
    made: bool = True
    """Whether there is a volume after an answer that leaves it open."""
    more: int = 0
    """By how much it is too large, or too small."""
    filled: bool = True
    topologies: tuple[Segment, ...] = ()


class Disk(OpenDriver):
    """Answers as told for as long as it is told something; afterwards it is in order."""

    def __init__(self, answers: Sequence[Answer], refusals: Sequence[Code | None]) -> None:
        super().__init__(samples.info(controller=ABLE))
        self.answers, self.refusals = list(answers), list(refusals)
        self.volumes: set[str] = set()
        self.hangs = False

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        self.asked.append(("create", request))
        answer = self.answers.pop(0) if self.answers else Answer()
        volume = f"id-{request.name}"
        if answer.kind == "away":
            raise NotSent(Code.UNAVAILABLE, "away")
        if answer.kind == "final" and volume not in self.volumes:
            raise DriverError(answer.code, "no")
        if answer.kind == "ok" or answer.made:
            self.volumes.add(volume)
        if answer.kind == "ok":
            size = max(request.required_bytes + answer.more, 0)
            return CreatedVolume(volume, size, topologies=answer.topologies, has_source=answer.filled)
        if answer.kind == "never":
            self.hangs = True
            await asyncio.Event().wait()
        if answer.kind == "bad":
            raise BadAnswer("CreateVolume answered without a volume id")
        raise DriverError(answer.code if answer.kind == "open" else Code.INTERNAL, "perhaps")

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        self.asked.append(("delete", volume_id))
        code = self.refusals.pop(0) if self.refusals else None
        if code is not None:
            raise DriverError(code, "not now")
        self.volumes.discard(volume_id)


# ---- what may come -------------------------------------------------------------------------------------------------

parameter_names = st.sampled_from(
    [
        NAME, NAMESPACE, OLD_NAME, OLD_NAMESPACE, DEFAULT_NAME, DEFAULT_NAMESPACE,
        f"{PREFIX}node-stage-secret-name", f"{PREFIX}bim", f"{PREFIX}fstype", "fstype", "FsType", "pool",
    ]
)  # fmt: skip
parameter_values = st.sampled_from(
    ["a", "a", "b", "", "$", "${", "${}", "${unknown}", "${pvc.name}", "${pv.name}", "${pvc.annotations['akey']}", "$pvc.name", "Ä", "xfs"]
) | st.text(max_size=8)
no_parameters: st.SearchStrategy[dict[str, str]] = st.just({})
with_secret = st.just({NAME: "a", NAMESPACE: "b"})
parameters = no_parameters | with_secret | st.dictionaries(parameter_names, parameter_values, max_size=4)

sizes = st.sampled_from(["100", "100", "150", "0", "-1", "-1Gi", "1500m", "0.5", "1Gi", "8Ei", "9e18", "1e400", "9e9999", "lots", "", "1e"])
modes = st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadOnlyMany", "ReadWriteOnce"], ["ReadWriteOncePod"], ["Sometimes"], []])
sources = st.sampled_from(
    [
        {}, {}, {},
        {"dataSource": FROM_SNAPSHOT}, {"dataSource": FROM_CLAIM}, {"dataSourceRef": FROM_SNAPSHOT},
        {"dataSource": {"kind": "MyPopulator", "apiGroup": "x", "name": "y"}},
        {"dataSource": {**FROM_SNAPSHOT, "name": ""}}, {"dataSource": {**FROM_CLAIM, "name": "missing"}},
        {"dataSourceRef": {**FROM_SNAPSHOT, "namespace": FAR}}, {"dataSource": {}}, {"dataSourceRef": {"kind": None}},
    ]
)  # fmt: skip
rarities = st.sampled_from(
    [
        {}, {}, {},
        {"volumeMode": "Block"}, {"volumeMode": "Wrong"}, {"selector": {}}, {"storageClassName": "missing"},
        {"volumeAttributesClassName": "gold"}, {"volumeAttributesClassName": "missing"},
    ]
)  # fmt: skip
allowed = st.sampled_from([None, None, None, [samples.KEY, "foo"], [samples.KEY, "bar"], ["zone", "z"]])

topologies = st.sampled_from([(), (samples.info().segment,), (_FAR,), (Segment(),), (_FAR, samples.info().segment)])
answers = st.one_of(
    st.builds(Answer, st.just("ok"), more=st.sampled_from([0, 0, 1, 2**40, -1, -(2**70)]), filled=st.booleans(), topologies=topologies),
    st.builds(Answer, st.just("open"), st.sampled_from(_OPEN), st.booleans()),
    st.builds(Answer, st.just("final"), st.sampled_from(_FINAL), st.just(False)),
    st.builds(Answer, st.sampled_from(["bad", "never"]), made=st.booleans()),
    st.just(Answer("away", made=False)),
)
refusals = st.none() | st.sampled_from([Code.INTERNAL, Code.FAILED_PRECONDITION, Code.DEADLINE_EXCEEDED, Code.NOT_FOUND])
troubles: st.SearchStrategy[ApiError] = st.sampled_from(
    [
        Unavailable("away"),
        Forbidden("no"),
        Conflict("changed"),
        NotFound("gone"),
        Invalid("wrong"),
        TooManyRequests("slow", retry_after=1.0),
    ]
)
steps = st.one_of(
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("the claim is deleted"), st.none()),
    st.tuples(st.just("the class is another one"), parameters),
    st.tuples(st.just("the class is deleted"), st.none()),
    st.tuples(st.sampled_from(["get", "create", "replace"]), troubles),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("the watch shows the volume"), st.none()),
)


stories = st.lists(steps, min_size=3, max_size=10).map(lambda some: [part for step in some for part in (step, ("look", None))])
plain_sources = st.sampled_from([{}, {"dataSource": FROM_SNAPSHOT}, {"dataSource": FROM_CLAIM}])
flags = st.fixed_dictionaries({}, optional={"cross_namespace_sources": st.booleans(), "extra_create_metadata": st.booleans()})
plans, denials = st.lists(answers, max_size=6), st.lists(refusals, max_size=3)


@dataclass
class Play:
    """One node through several lives of its process. What outlives a process: the driver, the server, the journal."""

    driver: Disk
    kube: KeepingKube
    options: Json
    paper: JournalInMemory = field(default_factory=JournalInMemory)
    class_: Json | None = None
    claim: Json | None = None
    now: float = 100.0

    def __post_init__(self) -> None:
        self.room = self._begin()

    def _begin(self) -> Room:
        room = Room(driver=self.driver, kube=self.kube, paper=self.paper, options=self.options, now=self.now)
        if self.class_ is not None:
            room.see(class_=samples.class_(**self.class_))
        if self.claim is not None:
            room.show(self.claim)
        return room

    async def happen(self, what: str, how: Any) -> None:
        match what:
            case "look":
                await self.look()
            case "the claim is deleted":
                self.claim = None
                self.room.delete_claim()
            case "the class is another one" | "the class is deleted":
                self.class_ = None if how is None else {**(self.class_ or {}), "parameters": how}
                fresh = None if self.class_ is None else samples.class_(**self.class_)
                self.room.caches.classes.apply(Change("fake-class", None, fresh))
            case "restart":
                self.room = self._begin()
                await self.room.room.take_over()
                self.show_volume()
            case "the watch shows the volume":
                self.show_volume()
            case verb:
                self.kube.failures.setdefault(verb, []).append(how)

    def show_volume(self) -> None:
        stored = self.kube.objects.get(("persistentvolumes", "test-testi"))
        if stored is not None:
            volume = Volume.of(stored)
            self.room.caches.volumes.apply(Change(volume.name, None, volume))

    async def look(self) -> float | None:
        """One look, which the loop would cut should the driver hang. It waits for its turn."""
        room, asked, told = self.room, self.driver.count("create"), len(self.room.told.events)
        healthy = not any(self.kube.failures.values())
        task = asyncio.create_task(room.room.handle_claim(UID))
        while not task.done() and not self.driver.hangs:
            await asyncio.sleep(0)
        if self.driver.hangs:
            self.driver.hangs = False
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert room.room.concerns(UID)
            return room.now
        until = task.result()
        filled = (self.claim or {}).get("spec", {}).keys() & {"dataSource", "dataSourceRef"}
        assert until is None or room.now <= until <= room.now + (_LONGEST_FOR_A_SOURCE if filled else _LONGEST)
        if self.driver.count("create") == asked and healthy:
            self._told_what_to_change(room.told.events[told:])
        self._still_open(until)
        self.now = room.now = max(room.now, until or 0.0)
        return until

    def _told_what_to_change(self, events: list[tuple[str, str, str, str]]) -> None:
        for _, type_, reason, message in events:
            if (type_, reason) == ("Warning", "ProvisioningFailed"):
                about = r"StorageClass|claim\.spec|source |access mode|Secret |VolumeAttributesClass|CSI driver|PersistentVolume"
                assert re.search(about, message), message

    def _still_open(self, until: float | None) -> None:
        """A claim of this node that got neither a volume nor a word is not put away."""
        if until is None and self.claim is not None and _selected(self.room) and "test-testi" not in _stored(self.kube):
            assert self.room.told.events[-1][1:3] == ("Normal", "Provisioning"), "unless somebody else fills it"

    def check(self) -> None:
        """A volume is in nobody's memory, in no journal and in no PersistentVolume: then it has leaked."""
        handles = {obj["spec"]["csi"]["volumeHandle"] for name, obj in _volumes(self.kube)}
        recorded = {f"id-{begun.request.name}" for begun in self.paper.lines.values()}
        assert self.driver.volumes <= handles | recorded


def _volumes(kube: KeepingKube) -> list[tuple[str, Json]]:
    return [(name, obj) for (plural, name), obj in kube.objects.items() if plural == "persistentvolumes"]


def _stored(kube: KeepingKube) -> set[str]:
    return {name for name, _ in _volumes(kube)}


def _selected(room: Room) -> bool:
    claim = room.caches.claims.get(UID)
    return claim is not None and claim.selected_node == samples.NODE


def told(class_: Json, claim: Json, *, options: Json, plan: list[Answer], refused: list[Code | None], story: list[tuple[str, Any]]) -> None:
    """One story, with what must hold looked at after each of its steps and at its end."""

    async def tell() -> None:
        play = Play(Disk(plan, refused), KeepingKube(), options, class_=class_, claim=claim)
        fill(play.room, world())
        play.room.add("secrets", secret("a", "b", key="value"))
        for what, how in [("look", None), *story]:
            await play.happen(what, how)
            play.check()
        await _afterwards(play)

    asyncio.run(tell())


def claim_of(size: str, *, immediate: bool, **spec: Any) -> Json:
    selected: dict[str, str | None] = {} if immediate else {"volume.kubernetes.io/selected-node": samples.NODE}
    return samples.claim_json(annotations=selected, resources={"requests": {"storage": size}}, **spec)


def class_of(parameters: dict[str, str], *, immediate: bool, allowed: list[str] | None = None) -> Json:
    binding: Json = {"parameters": parameters, "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer"}
    if allowed is None:
        return binding
    return binding | {"allowedTopologies": [{"matchLabelExpressions": [{"key": allowed[0], "values": allowed[1:]}]}]}


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), immediate=st.booleans())
def test_whatever_comes_no_volume_is_lost_sight_of_and_users_hear_what_to_change(data: st.DataObject, immediate: bool) -> None:
    draw = data.draw
    odd = draw(st.booleans())  # in a half of them claim and class are in order, so that the driver has its say
    spec = draw(sources) | draw(rarities) | {"accessModes": draw(modes)} if odd else draw(plain_sources)
    claim = claim_of(draw(sizes) if odd else "100", immediate=immediate, **spec)
    class_ = class_of(draw(parameters if odd else no_parameters | with_secret), immediate=immediate, allowed=draw(allowed) if odd else None)
    told(class_, claim, options=draw(flags), plan=draw(plans), refused=draw(denials), story=draw(stories))


async def _afterwards(play: Play) -> None:
    """Everything is in order again, the claim is deleted, and one more process starts: what nobody can have a use for is gone."""
    play.driver.answers.clear()
    play.driver.refusals.clear()
    play.kube.failures.clear()
    await play.happen("the claim is deleted", None)
    await play.happen("restart", None)
    for _ in range(10):
        if await play.look() is None:
            break
    play.check()
    assert not play.paper.lines
    handles = {obj["spec"]["csi"]["volumeHandle"] for _, obj in _volumes(play.kube)}
    assert play.driver.volumes <= handles
