"""The demo: `python -m hack.sim.demo`, or hack/demo, which does all set-up first.

The real program runs as three processes, each beside a served driver of its own, on the embedded API server or on the one that
--kubeconfig names. The story is told while it happens; at the end there is a row for each claim, and the drivers' own state is held
against what the API server says. The exit code is 0 only if every claim came where it should, and nothing leaked or was made twice.
"""

import argparse
import asyncio
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.sim.demo.acts import tell
from hack.sim.demo.stage import NAMESPACE, Failed, Stage, staged
from hack.sim.driver.options import pair
from sidecar.errors import SidecarError

_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The path of a unix socket has at most 107 bytes, and some machines have a long TMPDIR.
_LONGEST_TEMPORARY: Final = 60


async def play(options: argparse.Namespace, work: Path) -> int:
    """The exit code. Everything that was started is gone on return, however it ends."""
    try:
        async with staged(work, options.kubeconfig, options.sidecar_kubeconfig, dict(options.node_label)) as (stage, kubeconfig):
            await tell(stage)
            text, agree = stage.verdict()
            print(f"\n{stage.table()}\n\n{text}", flush=True)
            if not agree:
                raise Failed("the drivers' own state and the API server disagree")
            print(f"all came as it should, in {stage.seconds():.0f} s", flush=True)
            if options.keep:
                await _stay(stage, kubeconfig)
            return 0
    except (SidecarError, OSError, AssertionError) as error:
        print(f"\nFAILED: {error}", flush=True)
        return 1


async def _stay(stage: Stage, kubeconfig: Path) -> None:
    """Until told to stop, which then is no failure."""
    folder = next(iter(stage.drivers.values())).socket.parent
    print(
        f"\nEverything goes on running until Ctrl-C. To play with it, in another terminal:\n"
        f"  export KUBECONFIG={kubeconfig}\n"
        f"  kubectl get persistentvolumeclaims,persistentvolumes,pods,csistoragecapacities\n"
        f"  {sys.executable} -m sidecar explain pvc {NAMESPACE}/race-1\n"
        f"The logs, and what the drivers know, are in {folder}.",
        flush=True,
    )
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _read(arguments)
    temporary = tempfile.gettempdir()
    work = Path(tempfile.mkdtemp(prefix="csi-demo-", dir=temporary if len(temporary) <= _LONGEST_TEMPORARY else "/tmp"))
    logging.basicConfig(filename=work / "demo.log", level=logging.INFO)
    code = asyncio.run(_until_told_to_stop(options, work))
    if code == 1:
        print(f"what the programs said is kept in {work}", flush=True)
    else:
        shutil.rmtree(work, ignore_errors=True)
    return code


async def _until_told_to_stop(options: argparse.Namespace, work: Path) -> int:
    """The story's exit code, or 128 and the signal that cut it off."""
    loop, told = asyncio.get_running_loop(), []
    playing = asyncio.create_task(play(options, work))

    def stop(number: int) -> None:
        told.append(number)
        playing.cancel()

    for number in _STOPS:
        loop.add_signal_handler(number, stop, number)
    with contextlib.suppress(asyncio.CancelledError):
        return await playing
    return 128 + told[0]


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hack.sim.demo",
        description="The real program as three processes with three drivers: races, placement by capacity, a full node, a kill -9.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--keep", action="store_true", help="leave everything running at the end, and say how to reach it")
    own = "of a cluster without nodes that has its own controllers; default: an embedded API server"
    add("--kubeconfig", type=Path, metavar="FILE", help=own)
    add("--sidecar-kubeconfig", type=Path, metavar="FILE", help="for the sidecars, with the rights they should have; default: the same")
    add("--node-label", type=pair, action="append", default=[], metavar="KEY=VALUE", help="repeatable; on the nodes that are made")
    return parser.parse_args(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
