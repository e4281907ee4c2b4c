"""Case E7 of the whole room: what is in a Secret reaches the driver and nobody else, whatever becomes of the volume.

Everything that the room says is listened to: log records of every level as they are and as they are written, events, decisions,
the page of metrics, the journal, the objects and requests at the API server, what it remembers, and exceptions with their tracebacks.
"""

import asyncio
import base64
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.csi.api import MODIFY_VOLUME, CreatedVolume
from sidecar.csi.outcome import BadAnswer, Code, NotSent
from sidecar.model.objects import Volume
from sidecar.observe import logs
from sidecar.observe.sanitize import to_json
from sidecar.provisioning.creations.creation_record import to_line
from sidecar.provisioning.creations.journal import FileJournal
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc
from tests.harness.provisioning.room import KINDS, Json, OpenDriver, Room, every_kind, room_for, secret

CANARY = "canary-7f3a"
TELLTALES = (CANARY, base64.b64encode(CANARY.encode()).decode(), CANARY.encode().hex())


def caged(kind: str) -> Json:
    """A Secret of that kind that is nothing but the canary."""
    return secret(f"{kind}-name", f"{kind}-namespace", **{"password": CANARY, f"{kind}.key": CANARY})


@dataclass
class Ears:
    """Everything that is said, as far as it is not asked for at the end."""

    room: Room
    records: list[logging.LogRecord] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    """Files of the journal, and bodies of requests but for the Secrets themselves."""

    def sayings(self) -> Iterator[tuple[str, str]]:
        for record in self.records:
            yield "log record", repr(record.__dict__)
            for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
                yield "log line", formatter.format(record)
        for event in self.room.told.events:
            yield "event", repr(event)
        yield "decision", to_json(self.room.decisions.rows())  # type: ignore[arg-type]
        yield "metric", self.room.metrics.render()[0].decode()
        yield "journal", repr((self.room.paper, [to_line(begun) for begun in self.room.paper.lines.values()], self.written))
        yield "request", repr(self.room.kube.asked)
        yield "object", repr([obj for (plural, _), obj in self.room.kube.objects.items() if plural != "secrets"])
        yield "request to the driver", repr(self.room.driver.asked)
        table = self.room.table
        kept = [table.progress(UID), table.findings(UID), table.records.get(UID), self.room.room.claim_view(UID)]
        yield "memory", repr(kept)
        for error in self.raised:
            yield "exception", "".join(traceback.format_exception(error)) + repr(error.args)

    def heard(self) -> set[str]:
        """Where the canary sings."""
        return {where for where, what in self.sayings() if any(telltale in what for telltale in TELLTALES)}

    def look(self, what: Callable[[], Any], times: int = 1) -> None:
        for _ in range(times):
            try:
                until = what()
            except Exception as error:  # noqa: BLE001 - what the loop would log, with its traceback
                self.raised.append(error)
                continue
            self.room.now = max(self.room.now, until or 0.0)


@pytest.fixture
def listening(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[Room], Ears]]:
    caplog.set_level(1)
    made: list[Ears] = []

    def listen(room: Room) -> Ears:
        made.append(Ears(room, caplog.records))
        return made[-1]

    yield listen
    (ears,) = made
    assert any(record.name.startswith("sidecar.") for record in ears.records), "the room has logged something"


def room_with_canaries(**doors: Any) -> Room:
    room = room_for(samples.claim_json(annotations={"akey": "avalue"}), parameters=every_kind(), **doors)
    return room.add("secrets", *(caged(kind) for kind in KINDS))


def texts(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


def silent(ears: Ears) -> None:
    """The driver was given the canary, and nobody else."""
    assert any(CANARY in given.values() for _, given in ears.room.driver.given)
    assert ears.heard() == set()


MADE = CreatedVolume("id", 100, topologies=(samples.info().segment,))
FULL_LIFE = pytest.mark.parametrize(
    "creates",
    [
        pytest.param([MADE], id="E7-success"),
        *(pytest.param([rpc(code), MADE], id=f"E7-{code.value}") for code in Code if code is not Code.OK),
        pytest.param([NotSent(Code.UNAVAILABLE, "away"), MADE], id="E7-away"),
        pytest.param([BadAnswer("no id"), MADE], id="E7-bad-answer"),
        pytest.param([CreatedVolume("small", 99), MADE], id="E7-undo"),
        pytest.param([RuntimeError("a bug"), MADE], id="E7-crash"),
    ],
)


@FULL_LIFE
def test_E7_from_creation_over_failure_and_undoing_to_deletion(
    creates: list[CreatedVolume | Exception], listening: Callable[[Room], Ears]
) -> None:
    room = room_with_canaries(driver=OpenDriver(creates=creates))
    ears = listening(room)
    ears.look(room.claim, 3)
    if room.kube.wrote("create"):
        stored = {**room.kube.wrote_volume(), "status": {"phase": "Released"}}
        stored["metadata"] |= {"uid": "volume-uid", "resourceVersion": "9"}
        room.add("persistentvolumes", stored).see(volume=Volume.of(stored))
        room.driver.deletes = [rpc(Code.INTERNAL), RuntimeError("a bug"), None]
        ears.look(room.volume, 4)
        assert [method for method, _ in room.driver.given].count("delete") >= 3
    silent(ears)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([MADE], id="E7-found"),
        pytest.param([rpc(Code.INTERNAL)], id="E7-denied"),
        pytest.param([rpc(Code.ALREADY_EXISTS)], id="E7-occupied"),
        pytest.param([RuntimeError("a bug"), rpc(Code.ABORTED), MADE], id="E7-crash"),
    ],
)
def test_E7_when_the_next_process_cleans_up(
    answers: list[CreatedVolume | Exception], listening: Callable[[Room], Ears], tmp_path: Path
) -> None:
    """With the journal as a process leaves it on the disk when it is killed."""

    async def life(room: Room, ears: Ears, looks: int) -> None:
        journal = FileJournal(tmp_path, samples.DRIVER, on_state=print)
        room.room.creations.journal = journal
        await room.room.take_over()
        for _ in range(looks):
            try:
                await room.room.handle_claim(UID)
            except RuntimeError as error:
                ears.raised.append(error)
            ears.written += texts(tmp_path)
        os.close(journal._file)

    first = room_with_canaries(driver=OpenDriver(creates=[rpc(Code.DEADLINE_EXCEEDED)]))
    ears = listening(first)
    asyncio.run(life(first, ears, 1))
    assert any('"secret":["provisioner-namespace","provisioner-name"]' in text for text in ears.written), "it is the journal"
    silent(ears)
    ears.room = second = Room(driver=OpenDriver(creates=answers, deletes=[rpc(Code.INTERNAL), None]))
    second.add("secrets", *(caged(kind) for kind in KINDS))
    second.add("storageclasses", samples.class_json(parameters=every_kind()))
    asyncio.run(life(second, ears, 4))
    silent(ears)


def test_E7_passwords_that_people_put_into_a_class_are_shown_to_nobody(listening: Callable[[Room], Ears]) -> None:
    """They are in the class, and so in what is asked of the driver, in the journal and in the PersistentVolume, and nowhere else."""
    able = replace(samples.info(), controller=samples.info().controller | {MODIFY_VOLUME})
    told = CreatedVolume("id", 100, context={"adminPassword": CANARY}, topologies=(samples.info().segment,))
    room = room_for(
        samples.claim_json(volumeAttributesClassName="gold"),
        parameters={"adminPassword": CANARY},
        driver=OpenDriver(info=able, creates=[rpc(Code.INTERNAL), rpc(Code.DEADLINE_EXCEEDED), CreatedVolume("small", 99), told]),
    )
    room.add("volumeattributesclasses", {"metadata": {"name": "gold"}, "driverName": samples.DRIVER, "parameters": {"iops": CANARY}})
    ears = listening(room)
    ears.look(room.claim, 6)
    assert ears.heard() <= {"request to the driver", "journal", "object", "request"}
    assert room.kube.wrote("create")
    asked = room.driver.asked[0][1]
    assert (asked.parameters, asked.mutable_parameters) == ({"adminPassword": CANARY}, {"iops": CANARY})
    assert "adminPassword" in to_json(room.decisions.rows())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"password": base64.b64encode(CANARY.encode() + b"\xff").decode()}, id="E7-not-text"),
        pytest.param({"password": CANARY + "!"}, id="E7-not-base64"),
    ],
)
def test_E7_a_secret_that_cannot_be_given_to_a_driver_is_named_by_its_key_only(
    data: dict[str, str], listening: Callable[[Room], Ears]
) -> None:
    room = room_with_canaries()
    room.add("secrets", secret("provisioner-name", "provisioner-namespace") | {"data": data})
    ears = listening(room)
    ears.look(room.claim, 2)
    assert "'password'" in room.said() and room.driver.asked == []
    assert ears.heard() == set()
