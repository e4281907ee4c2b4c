"""What people are told of an earlier life in which volumes were made here, and that reading it takes nothing over."""

import asyncio
from dataclasses import replace
from pathlib import Path

from sidecar.csi.api import CreateRequest
from sidecar.kube.errors import Forbidden
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.provisioning.left_alone_io import JournalFiles, LeftAlone, look
from tests.harness import samples
from tests.harness.doors import ScriptedKube

BEGUN = CreationRecord("uid", "ns", "data", "late", CreateRequest("pvc-uid", 100, ()), node=samples.NODE)
HERE = samples.here()


class NoJournals:
    async def count(self, driver: str) -> int:
        return 0


def found(*volumes: Volume, kube: ScriptedKube | None = None, namespace: str = "ns") -> LeftAlone:
    return asyncio.run(look(kube or ScriptedKube(), HERE, volumes, namespace=namespace, journals=NoJournals()))  # type: ignore[arg-type]


def test_unfinished_creations_are_counted_and_stay(tmp_path: Path) -> None:
    journals = JournalFiles(tmp_path, former=None)

    async def provisioned() -> None:
        journal = FileJournal(tmp_path, samples.DRIVER, on_state=lambda _: None)
        await journal.take_over()
        await journal.begin(BEGUN)
        await journal.close()

    asyncio.run(provisioned())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before
    assert asyncio.run(journals.count(samples.DRIVER)) == 1
    assert asyncio.run(journals.count("other.example")) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_read_is_no_reason_to_end(tmp_path: Path) -> None:
    assert asyncio.run(JournalFiles(tmp_path / "nowhere", former=None).count(samples.DRIVER)) == 0


def test_volumes_count_that_were_made_here_and_have_the_finalizer() -> None:
    for change, counts in [
        ({"identity": f"1-2-{samples.DRIVER}-{samples.NODE}"}, True),
        ({"identity": f"1-2-{samples.DRIVER}"}, False),
        ({"identity": f"1-2-{samples.DRIVER}-bar"}, False),
        ({"identity": f"1-2-{samples.DRIVER}-{samples.NODE}", "finalizers": ()}, False),
    ]:
        volume = replace(samples.volume(meta={"finalizers": [names.VOLUME_FINALIZER]}), **change)  # type: ignore[arg-type]
        assert found(volume).volumes == counts


def test_what_may_not_be_read_is_not_told() -> None:
    kube = ScriptedKube(failures={"list": [Forbidden("no", status=403)]})
    assert found(kube=kube) == LeftAlone(0, 0, 0)
    assert found(kube=ScriptedKube(), namespace="") == LeftAlone(0, 0, 0)


def test_each_thing_has_its_remedy_and_nothing_has_none() -> None:
    assert LeftAlone(0, 0, 0).remedies("d", "n") == []
    assert len(LeftAlone(1, 2, 3).remedies("d", "n")) == 3
    for left, word in ((LeftAlone(1, 0, 0), "leftovers --driver d"), (LeftAlone(0, 1, 0), names.capacity_manager("n"))):
        (remedy,) = left.remedies("d", "n")
        assert word in remedy
