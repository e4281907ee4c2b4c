"""The attacks: what stands in the API server, what the driver answers, and what is done while the program runs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from hack.benchmarks.hostile.api_server import BOMB
from hack.benchmarks.hostile.bounds import USUAL, Bounds
from hack.benchmarks.hostile.objects import waiting_claim
from hack.benchmarks.hostile.scene import Scene
from hack.lib.programs import Json, within

Act = Callable[[Scene], float | None]
"""What is done, and the attack's own figure, if it has one."""

_MEGABYTE: Final = 1_000_000


def stay(seconds: float) -> Act:
    """Nothing more is needed: the program is watched for so long."""

    def act(scene: Scene) -> float | None:
        scene.rest(seconds)
        return None

    return act


_STAY: Final = stay(10.0)


def start_again(scene: Scene) -> float | None:
    """The list comes at each start, so a second one must live too."""
    scene.rest(8.0)
    scene.restart()
    scene.rest(8.0)
    return None


def count_series(scene: Scene) -> float | None:
    scene.rest(15.0)
    return sum(not line.startswith("#") for line in scene.sidecar.page("/metrics")[1].splitlines())


def read_decisions(scene: Scene) -> float | None:
    """How many MB the debug page has, which holds what the driver said."""
    scene.rest(15.0)
    return len(scene.sidecar.page("/debug/decisions")[1]) / _MEGABYTE


def connect_silently(count: int) -> Act:
    def act(scene: Scene) -> float | None:
        with ExitStack() as stack:
            for _ in range(count):
                link = stack.enter_context(socket.socket())
                link.settimeout(0.2)
                try:
                    link.connect(("127.0.0.1", scene.sidecar.port))
                except OSError:
                    continue
            scene.rest(8.0)
            scene.driver.stop()  # what the process opens when its driver is gone needs files as well
            scene.rest(2.0)
            scene.driver.start()
            scene.rest(5.0)
        return None

    return act


def serve_another(scene: Scene) -> float | None:
    """Seconds that a claim of another namespace takes meanwhile."""
    scene.rest(3.0)
    slowest = 0.0
    for number in range(3):
        begun = time.monotonic()
        name = f"waiting-{number}"
        scene.create_claim(waiting_claim(name))
        within(60.0, lambda name=name: scene.has_volume(name))  # type: ignore[misc]
        slowest = max(slowest, time.monotonic() - begun)
    return slowest


@dataclass(frozen=True, kw_only=True)
class Attack:
    name: str
    what: str
    fill: str = "nothing"
    count: int = 0
    faults: Sequence[Json] = ()
    flags: Sequence[str] = ()
    act: Act = _STAY
    bounds: Bounds = USUAL
    figure: str = ""
    """What the attack's own figure counts."""


def _all() -> Iterator[Attack]:
    yield Attack(name="peace", what="nothing is done, for comparison")
    for count in (100, 500):
        yield Attack(
            name=f"large-{count}",
            what=f"{count} claims of another driver with 250 KiB of annotations; the program is started twice",
            fill="large",
            count=count,
            act=start_again,
        )
    yield Attack(
        name="large-impossible",
        what="500 Immediate claims of this driver, as large, that fit nowhere",
        fill="impossible",
        count=500,
        act=start_again,
    )
    yield Attack(name="gzip-bomb", what="lists of claims unfold from 0.3 to 300 MB", fill=BOMB)
    yield Attack(
        name="long-errors",
        what="the driver refuses 300 claims with texts of 1 MB",
        fill="selected",
        count=300,
        faults=[{"method": "CreateVolume", "fail": "INTERNAL", "message": "long " * (_MEGABYTE // 5)}],
        act=read_decisions,
        bounds=Bounds(figure=2.0),
        figure="MB of /debug/decisions",
    )
    yield Attack(
        name="missing-classes",
        what="4,000 claims, each of another class that does not exist",
        fill="without-class",
        count=4_000,
        act=count_series,
        bounds=Bounds(figure=1_500),
        figure="series of /metrics",
    )
    yield Attack(
        name="silent-connections",
        what="1,100 clients of the pages that say nothing, with 1,024 files allowed; the driver goes and comes back meanwhile",
        act=connect_silently(1_100),
    )
    yield Attack(
        name="crowd",
        what="10,000 claims of one namespace that are too large for their node",
        fill="crowd",
        count=10_000,
        act=serve_another,
        bounds=Bounds(figure=5.0),
        figure="slowest of three claims of another namespace, s",
    )


ATTACKS: Final[Mapping[str, Attack]] = {attack.name: attack for attack in _all()}
