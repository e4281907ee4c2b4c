"""What may be left behind is listed with why, and deleted only if a person says so and nothing names it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.commands.leftovers import Order, delete, run
from sidecar.config.config import Config
from sidecar.config.errors import UsageError
from sidecar.config.parse import Parsed, parse
from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code, DriverError, Lost, NotSent
from sidecar.model.objects import Json
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.provisioning.effects.creation_log import CreationLog
from sidecar.provisioning.lookups import Lookups
from sidecar.provisioning.progress_table import ProgressTable
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube, tools
from tests.harness.leftovers import OPEN, REQUEST, SUSPECT, written


def command(folder: Path, *words: str, ask: Any = lambda question: None) -> int:
    return run(["--driver", samples.DRIVER, f"--journal-dir={folder}", *words], {"NODE_NAME": samples.NODE}, ask=ask)


def config(folder: Path, *words: str) -> Config:
    parsed = parse(["--node-deployment", f"--journal-dir={folder}", *words], {"NODE_NAME": samples.NODE})
    assert isinstance(parsed, Parsed)
    return parsed.config


def deleted(
    folder: Path,
    record: CreationRecord = SUSPECT,
    *words: str,
    ask: Any = lambda question: True,
    yes: bool = False,
    form: str = "table",
    objects: Any = None,
    **doors: Any,
) -> tuple[int, ScriptedDriver]:
    driver = ScriptedDriver(**doors)
    work = delete(
        record,
        samples.here(),
        ScriptedKube(objects or {}),  # type: ignore[arg-type]
        driver,
        order=Order(samples.DRIVER, record.request.name, yes, form=form),
        config=config(folder, *words),
        ask=ask,
    )
    return asyncio.run(work), driver


def test_it_lists_the_suspects_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, SUSPECT, OPEN)
    assert command(tmp_path) == 0
    said = capsys.readouterr().out
    assert "pvc-u1" in said and "ns/data" in said and "somebody may want it" in said
    assert "pvc-u2" not in said and "1 more creations are under way" in said


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path / "missing") == 1
    assert "nothing was deleted" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pvc-u2", "pvc-nobody"])
def test_it_deletes_no_volume_that_is_not_suspected(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, SUSPECT, OPEN)
    assert command(tmp_path, "--delete", name, "--yes") == 1
    assert "none of the suspected leftovers" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--delete", "pvc-u1"], ["--driver", "d", "more"], ["--driver", "d", "--delete="], ["--driver="]])
def test_a_line_that_names_no_driver_or_an_empty_volume_cannot_be_read(words: list[str]) -> None:
    with pytest.raises(UsageError):
        run(words, {})


def test_what_a_person_agrees_to_is_found_deleted_and_struck_out(tmp_path: Path) -> None:
    journal = written(tmp_path, SUSPECT)
    code, driver = deleted(tmp_path)
    assert (code, [verb for verb, _ in driver.asked], driver.asked[-1][1]) == (0, ["create", "delete"], "test-volume-id")
    assert leftovers_io.read_all(tmp_path, samples.DRIVER) == {}
    table = ProgressTable()
    table.records.keep_suspect(SUSPECT)
    asyncio.run(CreationLog(table=table, journal=journal, losses=tools().losses).take_over())
    assert table.records.suspects() == 0 and journal._open.by_key == {}


def test_of_two_processes_the_one_that_has_the_suspect_hears_what_a_person_has_seen_to(tmp_path: Path) -> None:
    """As while a DaemonSet surges: either may find the word of it first."""

    async def story() -> None:
        first, second = (FileJournal(tmp_path, samples.DRIVER, on_state=print) for _ in range(2))
        logs = [CreationLog(table=ProgressTable(), journal=journal, losses=tools().losses) for journal in (first, second)]
        await logs[0].suspect(SUSPECT)
        await second.begin(OPEN)
        leftovers_io.settle(tmp_path, samples.DRIVER, SUSPECT.key)
        for log in reversed(logs):
            await log.take_over()
        assert list(first._open.by_key) == [] and list(second._open.by_key) == [OPEN.uid]
        await first.close()
        await logs[1].take_over()
        await second.close()

    asyncio.run(story())
    assert list(leftovers_io.read_all(tmp_path, samples.DRIVER)) == [OPEN.uid]
    assert len(list(tmp_path.glob(".csi-node-sidecar.*"))) == 1, "the word of it goes when nobody else can need it"


def test_a_known_handle_is_deleted_without_looking_for_it(tmp_path: Path) -> None:
    code, driver = deleted(tmp_path, replace(SUSPECT, deletion=BegunDeletion("vol-7")), yes=True, ask=None)
    assert (code, driver.asked) == (0, [("delete", "vol-7")])


@pytest.mark.parametrize("answer", [False, None])
def test_nothing_is_deleted_where_nobody_agrees(tmp_path: Path, answer: bool | None) -> None:
    code, driver = deleted(tmp_path, ask=lambda question: answer)
    assert (code, driver.asked) == (1, [])


def test_a_dry_run_calls_nobody(tmp_path: Path) -> None:
    code, driver = deleted(tmp_path, SUSPECT, "--dry-run")
    assert (code, driver.asked) == (0, [])


def term(node: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": samples.KEY, "operator": "In", "values": [node]}]}


def named(handle: str, name: str, node: str) -> dict[tuple[str, str], Any]:
    spec = {"csi": {"driver": samples.DRIVER, "volumeHandle": handle}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term(node)]}}}
    return {("persistentvolumes", name): samples.volume_json(meta={"name": name}, spec=spec)}


CLAIM = samples.claim_json(meta={"name": "data", "namespace": "ns", "uid": "u1"})


def bound_to(name: str) -> Json:
    return samples.claim_json(meta={"name": "data", "namespace": "ns", "uid": "u1"}, volumeName=name)


def test_what_is_left_of_a_former_name_can_be_deleted_while_its_claim_uses_another_volume(tmp_path: Path) -> None:
    """The flags for names have changed. A database's claim may live for years, and the one message says that this command deletes it."""
    objects = {("persistentvolumeclaims", "data"): bound_to("new-u1"), **named("id-new", "new-u1", samples.NODE)}
    code, driver = deleted(tmp_path, yes=True, objects=objects)
    assert (code, driver.asked[-1]) == (0, ("delete", "test-volume-id"))
    other = {("persistentvolumeclaims", "data"): bound_to("new-u1"), **named("test-volume-id", "new-u1", samples.NODE)}
    code, driver = deleted(tmp_path, yes=True, objects=other)
    assert (code, driver.count("delete")) == (1, 0), "the driver gives the claim's own volume"


@pytest.mark.parametrize(
    ("objects", "asked"),
    [
        pytest.param(named("test-volume-id", "theirs", "bar"), ["create"], id="a-PersistentVolume-of-another-node-has-the-handle"),
        pytest.param(named("test-volume-id", "theirs", samples.NODE), ["create"], id="one-of-this-node"),
        pytest.param(named("whatever", "pvc-u1", samples.NODE), [], id="its-own-PersistentVolume"),
        pytest.param({("persistentvolumeclaims", "data"): CLAIM}, [], id="its-claim"),
        pytest.param({("persistentvolumeclaims", "data"): bound_to("pvc-u1")}, [], id="its-claim-which-is-bound-to-it"),
    ],
)
def test_what_anything_leads_to_is_refused_also_with_yes(tmp_path: Path, objects: Any, asked: list[str]) -> None:
    code, driver = deleted(tmp_path, yes=True, objects=objects)
    assert (code, [verb for verb, _ in driver.asked]) == (1, asked)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "says_nothing"),
    [
        pytest.param(DriverError(Code.FAILED_PRECONDITION, "it is mounted"), True, id="refused"),
        pytest.param(NotSent(Code.UNAVAILABLE, "the driver is away"), True, id="not-sent"),
        pytest.param(DriverError(Code.DEADLINE_EXCEEDED, "no answer"), False, id="no-answer"),
        pytest.param(Lost(Code.UNAVAILABLE, "the connection broke"), False, id="lost"),
        pytest.param(DriverError(Code.INTERNAL, "busy"), False, id="a-status-that-says-nothing"),
    ],
)
def test_of_a_deletion_that_fails_no_more_is_said_than_is_known(
    tmp_path: Path, error: DriverError, says_nothing: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = deleted(tmp_path, yes=True, deletes=[error], creates=[CreatedVolume("v", 1)])
    said = capsys.readouterr().err
    assert code == 1
    assert ("nothing was deleted" in said, "may have deleted" in said) == (says_nothing, not says_nothing)
    assert not list(tmp_path.iterdir())


def test_a_deletion_that_cannot_be_written_down_is_one_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, driver = deleted(tmp_path / "gone", yes=True)
    said = capsys.readouterr()
    assert (code, [verb for verb, _ in driver.asked]) == (0, ["create", "delete"])
    assert "deleted volume pvc-u1" in said.out
    assert "it stays listed" in said.err and "nothing was deleted" not in said.err


def test_who_interrupts_a_deletion_hears_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(self: object, volume_id: str, *, secrets: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(ScriptedDriver, "delete_volume", interrupted)
    with pytest.raises(asyncio.CancelledError):
        deleted(tmp_path, yes=True)
    assert "may have deleted volume pvc-u1" in capsys.readouterr().err


def test_a_secret_that_no_class_names_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write in the folder of the journals too."""
    read: list[object] = []

    async def secret_if_any(self: object, ref: object, *, about: str) -> dict[str, str]:
        read.append(ref)
        return {}

    monkeypatch.setattr(Lookups, "secret_if_any", secret_if_any)
    code, _ = deleted(tmp_path, replace(SUSPECT, secret=("kube-system", "of-others")), yes=True)
    assert (code, read) == (0, [None])


def test_who_is_asked_hears_the_handle_and_why(tmp_path: Path) -> None:
    """A file may name any handle."""
    heard: list[str] = []
    deleted(tmp_path, replace(SUSPECT, deletion=BegunDeletion("vol-7")), ask=heard.append)
    assert SUSPECT.leftover in heard[0] and "vol-7" in heard[0]


RENAMED = replace(SUSPECT, request=replace(REQUEST, name="new-u1"), suspect="")


def listed(folder: Path) -> list[tuple[str, bool]]:
    return sorted((record.request.name, bool(record.suspect)) for record in leftovers_io.read_all(folder, samples.DRIVER).values())


def test_one_of_an_old_name_stays_listed_when_its_claim_has_a_volume_of_another_name(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = (FileJournal(tmp_path, samples.DRIVER, on_state=print) for _ in range(2))
        log = CreationLog(table=ProgressTable(), journal=first, losses=tools().losses)
        await log.begin(replace(SUSPECT, suspect=""))
        await log.suspect(SUSPECT)
        await log.begin(RENAMED)
        assert listed(tmp_path) == [("new-u1", False), ("pvc-u1", True)]
        log.end("u1")
        await first.close()
        assert listed(tmp_path) == [("pvc-u1", True)]
        table = ProgressTable()
        assert await CreationLog(table=table, journal=second, losses=tools().losses).take_over() == []
        assert table.records.suspects() == 1 and table.records.get("u1") is None
        await second.close()

    asyncio.run(story())
    assert listed(tmp_path) == [("pvc-u1", True)]


def test_of_two_left_for_one_claim_that_which_a_person_deletes_is_struck_out(tmp_path: Path) -> None:
    second = replace(RENAMED, suspect="the driver died of it")
    journal = written(tmp_path, SUSPECT, second)
    assert deleted(tmp_path, second)[0] == 0
    assert listed(tmp_path) == [("pvc-u1", True)]
    table = ProgressTable()
    for suspect in (SUSPECT, second):
        table.records.keep_suspect(suspect)
    asyncio.run(CreationLog(table=table, journal=journal, losses=tools().losses).take_over())
    assert table.records.suspects() == 1 and list(journal._open.by_key) == [SUSPECT.key]


def test_one_that_another_process_has_begun_anew_is_under_way(tmp_path: Path) -> None:
    journals = [written(tmp_path, SUSPECT), written(tmp_path, replace(SUSPECT, suspect=""))]
    assert len(journals) == 2 and listed(tmp_path) == [("pvc-u1", False)]


def test_what_one_dead_process_has_left_to_people_is_not_deleted_for_another_s_line(tmp_path: Path) -> None:
    async def story() -> list[CreationRecord]:
        for record in (replace(SUSPECT, suspect=""), SUSPECT):
            journal = FileJournal(tmp_path, samples.DRIVER, on_state=print)
            await journal.begin(record)
            await journal.close()
        third = FileJournal(tmp_path, samples.DRIVER, on_state=print)
        found = await third.take_over()
        await third.close()
        return found

    assert [bool(record.suspect) for record in asyncio.run(story())] == [True]
    assert listed(tmp_path) == [("pvc-u1", True)]


def test_a_program_is_not_asked(tmp_path: Path) -> None:
    written(tmp_path, SUSPECT)
    with pytest.raises(UsageError, match="with -o json nobody is asked: add --yes"):
        command(tmp_path, "--delete=pvc-u1", "-ojson")
