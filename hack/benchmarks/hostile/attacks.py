"""The attacks: what stands in the API server, what the driver answers, what is done, and the bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hack.benchmarks.hostile import acts
from hack.benchmarks.hostile.api_server import BOMB, REFUSING
from hack.benchmarks.hostile.bounds import USUAL, Bounds
from hack.benchmarks.hostile.driver import POLITE
from hack.lib.programs import Json

_MEGABYTE: Final = 1_000_000
_STAY: Final = acts.stay(10.0)


@dataclass(frozen=True, kw_only=True)
class Attack:
    name: str
    what: str
    fill: str = "nothing"
    count: int = 0
    manner: str = POLITE
    """Of the driver."""
    faults: Sequence[Json] = ()
    flags: Sequence[str] = ()
    act: acts.Act = _STAY
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
            act=acts.start_again,
        )
    yield Attack(
        name="large-impossible",
        what="500 Immediate claims of this driver, as large, that fit nowhere",
        fill="impossible",
        count=500,
        act=acts.start_again,
    )
    yield Attack(
        name="largest",
        what="10,000 claims and 10,000 volumes, 100 of them with 1.4 MB; listed twice, and all large ones change",
        fill="largest",
        count=100,
        act=acts.list_and_watch_the_largest,
        figure="large objects named in the log",
    )
    yield Attack(name="gzip-bomb", what="lists of claims unfold from 0.3 to 300 MB", fill=BOMB)
    yield Attack(
        name="long-errors",
        what="the driver refuses 300 claims with texts of 1 MB",
        fill="selected",
        count=300,
        faults=[{"method": "CreateVolume", "fail": "INTERNAL", "message": "long " * (_MEGABYTE // 5)}],
        act=acts.read_decisions,
        bounds=Bounds(figure=2.0),
        figure="MB of /debug/decisions",
    )
    yield Attack(
        name="missing-classes",
        what="4,000 claims, each of another class that does not exist",
        fill="without-class",
        count=4_000,
        act=acts.count_series,
        bounds=Bounds(figure=1_500),
        figure="series of /metrics",
    )
    yield Attack(
        name="silent-connections",
        what="1,100 clients of the pages that say nothing, with 1,024 files allowed; the driver goes and comes back meanwhile",
        act=acts.connect_silently(1_100),
        bounds=Bounds(healthz=2.0),  # who finds the queue of the listening socket full tries again after a second
    )
    yield Attack(
        name="crowd",
        what="10,000 claims of one namespace that are too large for their node",
        fill="crowd",
        count=10_000,
        act=acts.serve_another,
        bounds=Bounds(figure=5.0),
        figure="slowest of three claims of another namespace, s",
    )
    yield from _by_drivers()
    yield from _by_files()


def _by_drivers() -> Iterator[Attack]:
    yield Attack(
        name="big-answers",
        what="the driver's answers to CreateVolume have 5 MB, and gRPC takes 4 MiB",
        manner="big-answers",
        fill="selected",
        count=100,
        act=acts.count_repetitions,
        bounds=Bounds(figure=10),
        figure="calls for each volume",
    )
    yield Attack(
        name="endless-lists",
        what="to each page of ListVolumes the driver has another",
        manner="endless-lists",
        flags=("--drain-report",),
        act=acts.stay(30.0),
    )
    yield Attack(
        name="new-topologies",
        what="each of 300 volumes is where none was before",
        manner="new-topologies",
        fill="selected",
        count=300,
        act=acts.count_elsewhere,
        figure="PersistentVolumes",
    )
    yield Attack(
        name="refused-volumes",
        what="256 volumes with contexts of 200 KB, whose PersistentVolumes the API server refuses",
        manner="long-contexts",
        fill=REFUSING,
        count=256,
        flags=("--kube-api-qps=100", "--kube-api-burst=100"),
        act=acts.stay(30.0),
    )
    yield Attack(
        name="same-handle",
        what="the driver gives 300 claims the same volume",
        manner="same-handle",
        fill="selected",
        count=300,
        act=acts.count_same_handles,
        bounds=Bounds(figure=0),
        figure="PersistentVolumes with the handle of another",
    )


def _by_files() -> Iterator[Attack]:
    seconds = "s for the first claim"
    yield Attack(
        name="sparse-journal",
        what="one line of a journal has 3 GB, and takes no space",
        act=acts.find_a_sparse_journal,
        bounds=Bounds(figure=5.0),
        figure=seconds,
    )
    yield Attack(
        name="links",
        what="under names of journals lie links to somebody else's file",
        act=acts.find_links,
        bounds=Bounds(figure=0),
        figure="bytes of it changed",
    )
    yield Attack(
        name="forged-lines",
        what="a line of a journal names a volume that a PersistentVolume names, and a Secret of others",
        act=acts.find_forged_lines,
        bounds=Bounds(figure=0),
        figure="deletions of it, and reads of the Secret",
    )
    yield Attack(
        name="full-disk",
        what="the journal's file system has no free byte",
        act=acts.write_on_a_full_disk,
        bounds=Bounds(figure=5.0),
        figure="s from room until three claims have volumes",
    )


ATTACKS: Final[Mapping[str, Attack]] = {attack.name: attack for attack in _all()}
