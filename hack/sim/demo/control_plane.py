"""The demo's control plane in one process: the simulated API server, and with it those who bind, schedule and run pods."""

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.serve import serving_cluster
from hack.sim.stand_ins import Binder, Kubelet, Scheduler, StandInBase


async def run(kubeconfig: Path) -> None:
    """Serves until SIGTERM or SIGINT. The kubeconfig appears, whole, when there is somebody to answer."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = Cluster(clock=time.time, rng=random.random)
    async with serving_cluster(cluster) as served, asyncio.TaskGroup() as group:
        work = [group.create_task(_control(cluster)), group.create_task(_collect(cluster))]
        draft = kubeconfig.with_name(kubeconfig.name + ".tmp")
        served.kubeconfig(draft).replace(kubeconfig)
        await stop.wait()
        for task in work:
            task.cancel()


async def _control(cluster: Cluster) -> None:
    base = StandInBase(InProcessApi(cluster), clock=time.monotonic, rng=random.Random())
    for stand_in in (Binder, Scheduler, Kubelet):
        stand_in(base)
    await base.run()


async def _collect(cluster: Cluster) -> None:
    while True:
        await asyncio.sleep(1.0)
        cluster.collect_garbage()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.sim.demo.control_plane", description=__doc__, allow_abbrev=False)
    parser.add_argument("--write-kubeconfig", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    asyncio.run(run(options.write_kubeconfig))
    return 0


if __name__ == "__main__":
    sys.exit(main())
