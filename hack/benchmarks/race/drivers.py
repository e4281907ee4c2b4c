"""The CSI drivers of many nodes in one process: `python -m hack.benchmarks.race.drivers --folder DIR --nodes 30 --pool main=1Ti`.

A process for each would cost more than what is to be measured. Every node has its own socket, segment and pools; one record has all calls.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from hack.sim.driver.calls import Reception, Record
from hack.sim.driver.faults import Faults, parse_fault
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.serve import serving
from hack.sim.driver.spec import Spec
from sidecar.model.quantity import parse_bytes

DRIVER = "race.csi-node-sidecar.io"
TOPOLOGY_KEY = f"topology.{DRIVER}/node"


def node_name(number: int) -> str:
    return f"node-{number}"


def socket_of(folder: Path, node: str) -> Path:
    return folder / f"{node}.sock"


def calls_of(folder: Path) -> Path:
    return folder / "calls"


async def serve(arguments: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    record = Record(calls_of(arguments.folder))
    pools = {name: parse_bytes(size) for name, _, size in (word.partition("=") for word in arguments.pool)}
    async with AsyncExitStack() as stack:
        for number in range(1, arguments.nodes + 1):
            node = node_name(number)
            driver = LocalDriver(Spec(node_id=node, name=DRIVER, pools=pools))
            reception = Reception(record=record, faults=Faults(parse_fault(word) for word in arguments.fault))
            await stack.enter_async_context(serving(driver, socket_of(arguments.folder, node), reception=reception))
        await stop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.benchmarks.race.drivers", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="sockets and the record of all calls are made here")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pool", action="append", default=[], metavar="NAME=SIZE", help="every node has these")
    parser.add_argument("--fault", action="append", default=[], help="as in hack.sim.driver.serve")
    asyncio.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
