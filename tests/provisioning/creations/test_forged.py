"""What somebody has written into the journal, or a disk has made of it, deletes nothing that is used and reads no Secret for the driver."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.csi.api import Capability, CreateRequest
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from tests.harness import samples
from tests.harness.doors import ScriptedKube
from tests.harness.provisioning.bench import UID, Bench, run
from tests.harness.provisioning.journal import JournalInMemory, with_journal
from tests.harness.provisioning.room import PREFIX, OpenDriver, secret

REQUEST = CreateRequest(name="test-testi", required_bytes=100, capabilities=(Capability("SINGLE_NODE_WRITER"),))
RECORD = CreationRecord(UID, "fake-ns", "fake-pvc", "fake-class", REQUEST)
NAMED = {f"{PREFIX}provisioner-secret-name": "creds", f"{PREFIX}provisioner-secret-namespace": "${pvc.namespace}"}
BY_NOTE = {f"{PREFIX}provisioner-secret-name": "${pvc.annotations['whose']}", f"{PREFIX}provisioner-secret-namespace": "fake-ns"}
MINE, OTHERS = ("fake-ns", "creds"), ("kube-system", "root")


def bench(record: CreationRecord, *objects: tuple[str, dict[str, Any]], **doors: Any) -> Bench:
    """A process that starts and finds this line. The objects are the API server's."""
    known = {(plural, item["metadata"]["name"]): item for plural, item in objects}
    known |= {("secrets", name): secret(name, space, password="canary") for space, name in (MINE, OTHERS)}
    made = Bench(driver=OpenDriver(**doors), kube=ScriptedKube(objects=known))
    with_journal(made, JournalInMemory(lines={record.uid: record}))
    assert run(made.room.take_over()) == [record.uid]
    made.now += 60.0  # what the dead process has sent has arrived by then
    return made


def class_with(parameters: dict[str, str], **changes: Any) -> tuple[str, dict[str, Any]]:
    return "storageclasses", samples.class_json(parameters=parameters, **changes)


def volume_on(node: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    return "persistentvolumes", samples.volume_json(spec={"nodeAffinity": samples.placed(node), **changes.pop("spec", {})}, **changes)


def given(made: Bench) -> list[dict[str, str]]:
    assert isinstance(made.driver, OpenDriver)
    return [dict(secrets) for _, secrets in made.driver.given]


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_a_secret_that_the_class_of_the_claim_names_is_used() -> None:
    for objects, line in [
        ([class_with(NAMED)], MINE),
        ([class_with(BY_NOTE), ("persistentvolumeclaims", samples.claim_json(annotations={"whose": "creds"}))], MINE),
    ]:
        made = bench(replace(RECORD, secret=line), *objects)
        made.claim()
        assert given(made) == [{"password": "canary"}] * 2 and made.driver.count("delete") == 1
        assert made.value("csi_node_sidecar_journal_damage_total") == 0


def test_any_other_secret_is_not_read_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    for objects, line in [
        ([class_with(NAMED)], OTHERS),
        ([class_with({})], MINE),
        ([], MINE),
        ([class_with(NAMED, provisioner="another")], MINE),
        ([class_with({f"{PREFIX}provisioner-secret-name": "creds"})], MINE),
        ([class_with(BY_NOTE)], MINE),
        ([class_with(NAMED), ("persistentvolumeclaims", samples.claim_json(storageClassName="plain"))], MINE),
    ]:
        caplog.clear()
        made = bench(replace(RECORD, secret=line), *objects)
        made.claim()
        assert given(made) == [{}, {}] and made.driver.count("delete") == 1, "many drivers need none"
        assert not [name for verb, plural, name, _ in made.kube.asked if plural == "secrets"]
        assert [item.message for item in caplog.records if item.levelname == "WARNING"] == ["A Secret that the journal names is not used"]
        assert made.value('csi_node_sidecar_journal_damage_total{kind="unconfirmed"}') == 1


# --- volumes ----------------------------------------------------------------------------------------------------------


def test_what_a_persistent_volume_anywhere_names_is_not_deleted() -> None:
    """With the driver's handle, whatever name and node: only the file says that a volume was made here."""
    for node in [samples.NODE, "bar"]:
        for phase in ["Bound", "Released", "Available"]:
            made = bench(
                RECORD,
                volume_on(
                    node, meta={"name": "theirs"}, spec={"claimRef": {"uid": "u", "namespace": "n", "name": "c"}}, status={"phase": phase}
                ),
            )
            assert made.claim() is None
            assert made.driver.count("delete") == 0
            assert made.value("csi_node_sidecar_suspected_leaks_total") == (node != samples.NODE)


def test_the_volume_of_a_claim_that_went_to_another_node_does_not_keep_the_one_that_was_left_here() -> None:
    """Drivers that make handles of names give it the same one."""
    made = bench(RECORD, volume_on("bar"), ("persistentvolumeclaims", samples.claim_json(volumeName="test-testi")))
    made.claim()
    assert made.driver.count("delete") == 1


def test_a_name_that_is_not_the_claims_volumes_is_not_asked_for() -> None:
    """It would be any volume of the driver, even one that was never made for a claim."""
    made = bench(replace(RECORD, request=replace(REQUEST, name="by-hand")))
    assert made.claim() is None
    assert made.driver.asked == []
    assert made.value("csi_node_sidecar_suspected_leaks_total") == 1


def test_a_class_that_keeps_its_volumes_does_so_whatever_the_line_says() -> None:
    made = bench(replace(RECORD, reclaim_policy="Delete"), class_with({}, reclaimPolicy="Retain"))
    assert made.claim() is None
    assert made.driver.asked == [] and made.value("csi_node_sidecar_suspected_leaks_total") == 1


# --- deletions that were begun ----------------------------------------------------------------------------------------

BEGUN = replace(RECORD, deletion=BegunDeletion("test-volume-id"))


def test_a_deletion_that_was_begun_is_ended_with_the_secret_that_the_class_names() -> None:
    made = bench(replace(BEGUN, secret=MINE), class_with(NAMED))
    made.claim()
    assert made.driver.asked == [("delete", "test-volume-id")] and given(made) == [{"password": "canary"}]


def test_a_begun_deletion_of_what_a_persistent_volume_of_another_node_names_waits_and_gives_the_claim_nothing() -> None:
    """It may be another volume, whose deletion may still happen: then nobody may be given it."""
    theirs = {"claimRef": {"uid": "u", "namespace": "n", "name": "c"}}
    made = bench(BEGUN, volume_on("bar", meta={"name": "theirs"}, spec=theirs))
    assert made.claim() is not None
    assert made.driver.asked == []
    del made.kube.objects["persistentvolumes", "theirs"]
    made.claim()
    assert made.driver.asked == [("delete", "test-volume-id")]


# --- Nodes that were renamed, journals that were copied ---------------------------------------------------------------


def test_what_was_begun_on_a_node_of_another_name_is_left_to_people() -> None:
    """The node was renamed: its PersistentVolumes say that they lie on another node, and its data is in use."""
    for deletion in [None, BegunDeletion("test-volume-id")]:
        bound = samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "bar"}, volumeName="test-testi")
        record = replace(RECORD, node="bar", deletion=deletion)
        made = bench(record, ("persistentvolumeclaims", bound), volume_on("bar", status={"phase": "Bound"}))
        made.claim()
        assert not made.driver.asked
        suspect = made.room.creations.journal.suspect()  # type: ignore[attr-defined]
        assert "was begun on node bar" in suspect.suspect and "If the node was renamed" in made.told.events[-1][3]
