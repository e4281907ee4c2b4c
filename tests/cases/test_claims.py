"""Acceptance cases M that need more than one rule or one look: the queue under a claim, the metrics, and the whole PersistentVolume."""

from collections.abc import Awaitable, Callable
from typing import Any

from sidecar.csi.outcome import Code
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.loops import until
from tests.harness.provisioning.bench import rpc
from tests.harness.provisioning.room import Json, Room
from tests.harness.sidecar import SELECTED, ListedKube, SlowDriver, running, sidecar_on, world_of

PROVISION = "controller_persistentvolumeclaim_provision"


def live(kube: ListedKube, driver: Callable[[], ScriptedDriver], then: Callable[[Sidecar, Any], Awaitable[None]]) -> None:
    """The whole program, but for its doors; a failure is tried again only after five minutes."""
    made: list[ScriptedDriver] = []

    def program() -> Sidecar:
        made.append(driver())
        return sidecar_on(kube, "--retry-interval-start=300s", "--volume-name-prefix=test", "--volume-name-uuid-length=5", driver=made[0])

    running(program, lambda program: then(program, made[0]))


def touched(number: int) -> Json:
    return samples.claim_json(annotations=SELECTED, meta={"resourceVersion": str(100 + number), "labels": {"touched": str(number)}})


async def idle(program: Sidecar) -> None:
    """Nothing is held, and nothing waits for its turn now."""
    await until(lambda: (counts := program.provisioning.claims.counts()).held == 0 and counts.depth == 0)


def value(program: Sidecar, name: str) -> float:
    page = program._tools.metrics.render()[0].decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


def test_M1_of_our_claims_and_a_foreign_provisioners_only_ours_are_provisioned() -> None:
    theirs = {**SELECTED, "volume.kubernetes.io/storage-provisioner": "other"}
    foreign = samples.claim_json(annotations=theirs, meta={"uid": "other", "name": "theirs"})
    kube = world_of(foreign, samples.claim_json(annotations=SELECTED))

    async def then(program: Sidecar, driver: ScriptedDriver) -> None:
        await until(lambda: kube.wrote("create"))
        await idle(program)
        assert [body["spec"]["claimRef"]["name"] for body in kube.wrote("create") if body["kind"] == "PersistentVolume"] == ["fake-pvc"]
        assert driver.count("create") == 1
        assert (value(program, f"{PROVISION}_total"), value(program, f"{PROVISION}_failed_total")) == (1, 0)

    live(kube, ScriptedDriver, then)


def test_M14_what_is_ignored_makes_no_event_and_is_not_looked_at_again() -> None:
    for claim, class_ in [
        (samples.claim_json(annotations={"volume.kubernetes.io/selected-node": "bar"}), {}),
        (samples.claim_json(), {}),
        (samples.claim_json(), {"volumeBindingMode": None}),
        (samples.claim_json(volumeName="by-hand", annotations=SELECTED), {}),
    ]:
        room = Room().show(claim)
        room.see(class_=samples.class_(**class_))
        assert room.claim() is None
        assert room.told.events == [] and room.kube.asked == [] and room.driver.asked == []
        assert room.value(PROVISION) == 0
        assert room.room.claim_attempts.count("testid") == 0


def test_M29_an_event_during_the_longest_back_off_is_acted_upon_at_once() -> None:
    kube = world_of(samples.claim_json(annotations=SELECTED))

    async def then(program: Sidecar, driver: ScriptedDriver) -> None:
        await until(lambda: driver.count("create") == 1)
        await idle(program)
        (row,) = program.provisioning.claims.snapshot()
        assert row.due_in is not None and row.due_in > 100, "it is held back"
        kube.tell("persistentvolumeclaims", "MODIFIED", touched(1))
        await until(lambda: driver.count("create") == 2)

    live(kube, lambda: ScriptedDriver(creates=[rpc(Code.INTERNAL)]), then)


def test_M30_updates_that_come_while_a_claim_is_worked_on_are_one_more_look_and_never_a_second_at_the_same_time() -> None:
    updates = 7
    kube = world_of(samples.claim_json(annotations=SELECTED))

    async def then(program: Sidecar, driver: SlowDriver) -> None:
        await until(lambda: driver.at_work == 1)
        for number in range(updates):
            kube.tell("persistentvolumeclaims", "MODIFIED", touched(number))
        last = str(100 + updates - 1)
        await until(lambda: (seen := program.caches.claims.get("testid")) and seen.resource_version == last)
        assert driver.at_work == 1
        driver.go_on.release()
        await until(lambda: driver.count("create") == 1 and driver.at_work == 1)
        driver.go_on.release()
        await until(lambda: driver.count("create") == 2 and driver.at_work == 0)
        await idle(program)
        assert (driver.count("create"), driver.most_at_work) == (2, 1)

    live(kube, SlowDriver, then)
