"""The simulated driver with bad manners: `python -m hack.benchmarks.hostile.driver MANNER …`, the rest is as for the usual one."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hack.sim.driver.calls import Reception, Record
from hack.sim.driver.faults import Faults
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.options import Options, read_options
from hack.sim.driver.serve import serving
from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.model.topology import Segment

POLITE: Final = "polite"
_ABOVE_THE_LIMIT: Final = 5_000_000
_LONG: Final = 200_000
_PAGE: Final = 1_000


class _BigAnswers(LocalDriver):
    """What CreateVolume answers is more than gRPC takes."""

    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        made = super().create(request, limit_bytes=limit_bytes)
        return replace(made, context={**made.context, "note": "x" * _ABOVE_THE_LIMIT})


class _LongContexts(LocalDriver):
    """As long as they are taken."""

    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        made = super().create(request, limit_bytes=limit_bytes)
        return replace(made, context={**made.context, "note": request.name.ljust(_LONG, "x")})


class _NewTopologies(LocalDriver):
    """Each volume is somewhere where none was before."""

    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        made = super().create(request, limit_bytes=limit_bytes)
        return replace(made, topologies=(Segment.of({f"{self.spec.name}/{request.name}": request.name}),))


class _SameHandle(LocalDriver):
    """All volumes are one."""

    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        return replace(super().create(request, limit_bytes=limit_bytes), volume_id="the-only-one")


class _EndlessLists(LocalDriver):
    """After each page comes another."""

    def list_volumes(self, max_entries: int = 0, starting_token: str = "") -> tuple[tuple[CreatedVolume, ...], str]:
        after = int(starting_token or 0)
        page = itertools.islice(itertools.count(after), _PAGE)
        return tuple(CreatedVolume(f"volume-{number}", topologies=(self.spec.segment,)) for number in page), str(after + _PAGE)


MANNERS: Final[Mapping[str, type[LocalDriver]]] = {
    POLITE: LocalDriver,
    "big-answers": _BigAnswers,
    "long-contexts": _LongContexts,
    "new-topologies": _NewTopologies,
    "same-handle": _SameHandle,
    "endless-lists": _EndlessLists,
}


async def run(manner: str, options: Options) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    driver = MANNERS[manner](options.spec, state=options.state)
    reception = Reception(record=Record(options.calls), faults=Faults(options.faults, file=options.faults_file))
    async with serving(driver, options.endpoint, reception=reception):
        await stop.wait()
    driver.close()


def command(manner: str, usual: Sequence[str]) -> list[str]:
    """The command line of the usual driver, with such manners."""
    program, rest = list(usual[:2]), list(usual[3:])
    return [*program, "hack.benchmarks.hostile.driver", manner, *rest]


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], read_options(sys.argv[2:])))
