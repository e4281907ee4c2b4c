"""Nothing is begun that cannot be written down: a volume of it would leak if the process died."""

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.provisioning.creations.creation_record import CreationRecord
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import UID, late, rpc
from tests.harness.provisioning.journal import JournalInMemory, with_journal

FULL = "/csi cannot be written: No space left on device"


class FullJournal(JournalInMemory):
    why = FULL

    async def begin(self, begun: CreationRecord) -> str:
        await super().begin(begun)
        return self.why


def test_the_driver_is_not_called_and_the_user_is_told_until_there_is_room() -> None:
    bench = late(driver=ScriptedDriver(creates=[CreatedVolume("test-volume-id", 100)]))
    paper = FullJournal()
    with_journal(bench, paper)
    for _ in range(3):
        assert bench.claim_when_due() is not None
    assert bench.driver.asked == [] and paper.lines == {}, "nothing was begun"
    assert FULL in str(bench.told.events) and "ProvisioningFailed" in str(bench.told.events)
    assert bench.table.records.get(UID) is None and bench.value("csi_node_sidecar_claims_in_progress") == 0
    paper.why = ""
    bench.claim_when_due()
    assert bench.driver.count("create") == 1 and len(bench.kube.wrote("create")) == 1


def test_a_claim_that_goes_meanwhile_leaves_nothing() -> None:
    bench = late()
    with_journal(bench, FullJournal())
    bench.claim()
    bench.forget_claim()
    assert bench.claim() is None
    assert bench.driver.asked == [] and not bench.table.concerns(UID)


def test_what_is_written_down_already_goes_on() -> None:
    """Its line is on the disk: to wait would help nobody."""
    for answer in [Code.DEADLINE_EXCEEDED, Code.ABORTED]:
        bench = late(driver=ScriptedDriver(creates=[rpc(answer), CreatedVolume("test-volume-id", 100)]))
        paper = FullJournal()
        paper.why = ""
        with_journal(bench, paper)
        bench.claim()
        paper.why = FULL
        bench.claim()
        assert bench.driver.count("create") == 2 and len(bench.kube.wrote("create")) == 1
