"""A driver that makes volumes that nobody can use costs the API server a bounded number of lists, however many claims meet it."""

from dataclasses import dataclass, replace
from typing import Any

from sidecar.csi.api import CreatedVolume
from sidecar.engine.limiter import TokenBucket
from sidecar.provisioning.effects.undo_pace import PAUSE, WINDOW, UndoPace
from tests.harness import samples
from tests.harness.provisioning.bench import run
from tests.harness.provisioning.room import OpenDriver, Room

HOUR = 3600.0
CLAIMS = 20


@dataclass
class Many(Room):
    """Claims that are all this node's, each looked at when the room says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.see(class_=samples.class_())
        self.due: dict[str, float] = {}
        self.listed: list[float] = []
        for number in range(CLAIMS):
            uid = f"uid-{number:02}"
            self.see(claim=replace(samples.claim(selected=samples.NODE), uid=uid, name=f"claim-{number}"))
            self.due[uid] = self.now + 7.0 * number

    def look_around(self) -> Any:
        return samples.here(self.driver.info, volume_name_uuid_length=-1)

    def play(self, seconds: float) -> "Many":
        end = self.now + seconds
        while (at := min(self.due.values())) < end:
            uid = min(self.due, key=lambda key: self.due[key])
            self.now = max(self.now, at)
            before = self.lists()
            until = run(self.room.handle_claim(uid))
            self.listed += [self.now] if self.lists() > before else []
            assert until is None or until > self.now
            self.due[uid] = float("inf") if until is None else until
        self.now = end
        return self

    def lists(self) -> int:
        return len(self.kube.wrote("list"))


def test_volumes_that_nobody_can_use_cost_few_lists_and_all_go() -> None:
    made = Many(driver=OpenDriver(creates=[CreatedVolume("small", 99)], own_handles=True)).play(HOUR)
    # One look after the other here, so each of the same moment has a list of its own; in a process they share one.
    moments = {at for at in made.listed if at > 100.0 + 7.0 * CLAIMS}
    assert len(moments) <= 3 * (HOUR / (PAUSE + WINDOW) + 1) + HOUR / PAUSE
    assert len({volume for method, volume in made.driver.asked if method == "delete"}) == CLAIMS
    assert all("99 bytes" in text for _, _, reason, text in made.told.events if reason == "ProvisioningFailed")


def test_the_pace_opens_for_seconds_and_rests_for_minutes() -> None:
    pace = UndoPace(TokenBucket(1.0 / 1e9, 1))
    assert pace.wait_until(1.0) == 0.0
    assert [pace.wait_until(now) for now in (100.0, 104.9)] == [0.0, 0.0]
    assert [pace.wait_until(now) for now in (105.0, 404.9)] == [405.0, 405.0]
    assert pace.wait_until(405.0) == 0.0
    assert pace.wait_until(1000.0) == 0.0
