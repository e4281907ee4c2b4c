"""What the demo shows, one function for each act. An act ends when its result was seen, or with Failed.

The real program runs as three processes, each beside a served driver of its own. The story is told while it happens; at the end there is a
row for each claim, and the drivers' own state is held against what the API server says.
"""

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from hack.sim.demo.stage import NAMESPACE, SMALL, Failed, Stage, staged
from sidecar.csi.outcome import Code
from sidecar.errors import SidecarError
from sidecar.kube.api import CLAIMS, PODS
from sidecar.model.objects import IMMEDIATE, LATE

_SLOW: Final = {"method": "CreateVolume", "times": 1, "delay": 3.0}
"""A slow creation that goes on after its caller is gone, as with a driver that does not notice."""
# The path of a unix socket has at most 107 bytes, and some machines have a long TMPDIR.
_LONGEST_TEMPORARY: Final = 60


def show(
    *, keep: bool, kubeconfig: Path | None = None, sidecar_kubeconfig: Path | None = None, node_labels: Mapping[str, str] | None = None
) -> int:
    """The exit code. Without a kubeconfig on an embedded API server, else on that of a cluster without nodes that has its own controllers.
    `keep`: leave everything running at the end, until Ctrl-C."""
    temporary = tempfile.gettempdir()
    work = Path(tempfile.mkdtemp(prefix="csi-demo-", dir=temporary if len(temporary) <= _LONGEST_TEMPORARY else "/tmp"))
    logging.basicConfig(filename=work / "demo.log", level=logging.INFO)

    async def play() -> None:
        async with staged(work, kubeconfig, sidecar_kubeconfig, node_labels or {}) as (stage, own):
            await tell(stage)
            if keep:
                await _stay(stage, own)

    try:
        asyncio.run(play())
    except (SidecarError, OSError, AssertionError) as error:
        print(f"\nFAILED: {error}\nwhat the programs said is kept in {work}", flush=True)
        return 1
    except BaseException:  # it is told to stop, and everything that was started is gone
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work, ignore_errors=True)
    return 0


async def _stay(stage: Stage, kubeconfig: Path) -> None:
    """Until told to stop, which then is no failure."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    folder = next(iter(stage.drivers.values())).socket.parent
    print(
        f"\nEverything goes on running until Ctrl-C. To play with it, in another terminal:\n"
        f"  export KUBECONFIG={kubeconfig}\n"
        f"  kubectl get persistentvolumeclaims,persistentvolumes,pods,csistoragecapacities\n"
        f"  {sys.executable} -m sidecar explain pvc {NAMESPACE}/race-1\n"
        f"The logs, and what the drivers know, are in {folder}.",
        flush=True,
    )
    await stop.wait()


async def tell(stage: Stage) -> None:
    """Plays all acts once."""
    await race(stage)
    await place_by_capacity(stage)
    await run_full(stage)
    await kill_in_mid_creation(stage)
    await delete_one(stage)
    await stage.until_settled()
    text, agree = stage.verdict()
    print(f"\n{stage.table()}\n\n{text}", flush=True)
    if not agree:
        raise Failed("the drivers' own state and the API server disagree")
    print(f"all came as it should, in {stage.seconds():.0f} s", flush=True)


async def race(stage: Stage) -> None:
    heading("Six Immediate claims, and every sidecar may take them:")
    names = [f"race-{number}" for number in range(1, 7)]
    await _claim_now(stage, names)
    bids = await stage.bids()
    won = Counter(stage.claims[name].node for name in names)
    stage.say(f"{len(names)} claims, {bids} bids: {', '.join(f'{node} won {count}' for node, count in sorted(won.items()))}")
    _note(stage, names, f"raced for by {len(stage.drivers)} nodes")


async def place_by_capacity(stage: Stage) -> None:
    heading("Late-binding pods go where the published capacity suffices:")
    for name in ("batch-1", "batch-2"):
        await stage.until_settled()
        room = stage.free(SMALL)
        published = ", ".join(f"{node} {stage.free(node)}" for node in stage.drivers)
        stage.say(f"pod {name}: created with a claim of 9Gi; published are {published}")
        await stage.claim(name, LATE, "9Gi")
        await stage.pod(name)
        await stage.until(lambda name=name: stage.runs(name), f"pod {name} runs")  # type: ignore[misc]
        if stage.node_of(name) == SMALL:
            raise Failed(f"pod {name} was put on {SMALL}, which published {room}")
        _note(stage, [name], f"placed by capacity, {SMALL} had {room}")


async def run_full(stage: Stage) -> None:
    heading(f"{SMALL} runs full:")
    await stage.until_settled()
    size = stage.free(SMALL)
    await stage.claim("fill", LATE, size)
    await stage.pod("fill", on=SMALL)
    await stage.until(lambda: stage.runs("fill"), "pod fill runs")
    await stage.until_settled()
    stage.say(f"{SMALL} is full: three more Immediate claims, and a pod that must be on {SMALL}")
    await stage.claim("patient", LATE, "1Gi")
    await stage.pod("patient", on=SMALL)
    names, bids = [f"next-{number}" for number in range(1, 4)], await stage.bids(SMALL)
    await _claim_now(stage, names)
    if SMALL in {stage.claims[name].node for name in names} or await stage.bids(SMALL) != bids:
        raise Failed(f"{SMALL} is full, and bid for one of {', '.join(names)}")
    await stage.until(lambda: "free storage" in stage.waits_because("patient"), "the scheduler finds no room for pod patient")
    _note(stage, names, f"{SMALL} was full and did not bid")


async def kill_in_mid_creation(stage: Stage) -> None:
    heading("kill -9 in mid-creation:")
    stage.misbehave(_SLOW)
    await stage.claim("crash", IMMEDIATE, "1Gi")
    creating = lambda: [name for name, code in stage.calls_to_create("crash") if code is None]  # noqa: E731
    (victim,) = await stage.until(creating, "a driver is creating the volume of crash")
    stage.sidecars[victim].kill()
    stage.misbehave()
    stage.say(f"{victim}: its driver is creating the volume; its sidecar is killed with -9")
    volume = f"pvc-{stage.claims['crash'].uid}"
    await stage.until(lambda: stage.state(victim).named(volume), "the driver made the volume nevertheless")
    if stage.has_volume("crash"):
        raise Failed("crash has a PersistentVolume although nobody was there to write it")
    stage.say(f"{victim}: its driver has made the volume, and no PersistentVolume tells of it")
    stage.sidecars[victim].start()
    stage.say(f"{victim}: its sidecar is started again")
    await stage.until(lambda: stage.is_bound("crash"), "crash is bound")
    await stage.until_ready(victim)
    calls = stage.calls_to_create("crash")
    made = sum(each.name == volume for name in stage.drivers for each in stage.state(name).volumes.values())
    if made != 1 or {name for name, _ in calls} != {victim} or calls[-1][1] is not Code.OK:
        raise Failed(f"crash has {made} volumes; the calls were {calls}")
    stage.say(f"crash: CreateVolume was called {len(calls)} times, one volume was made")
    _note(stage, ["crash"], f"sidecar of {victim} killed -9 in CreateVolume, restarted")


async def delete_one(stage: Stage) -> None:
    heading("One claim is deleted, which makes room for the pod that waits:")
    for resource in (PODS, CLAIMS):
        await stage.api.delete(resource, "fill", namespace=NAMESPACE)
    stage.say("fill: pod and claim are deleted")
    await stage.until(lambda: not (stage.has_volume("fill") or stage.exists("fill")), "the volume of fill is gone")
    if stage.state(SMALL).named(f"pvc-{stage.claims['fill'].uid}"):
        raise Failed("the PersistentVolume of fill is gone, and its volume is not")
    _note(stage, ["fill"], f"filled {SMALL}; deleted, and its volume with it")
    await stage.until(lambda: stage.runs("patient"), "pod patient runs")
    _note(stage, ["patient"], f"waited until {SMALL} had room again")


async def _claim_now(stage: Stage, names: list[str]) -> None:
    await asyncio.gather(*(stage.claim(name, IMMEDIATE, "1Gi") for name in names))
    stage.say(f"{names[0]} … {names[-1]}: created")
    await stage.until(lambda: stage.is_bound(*names), f"{', '.join(names)} are bound")


def _note(stage: Stage, names: Iterable[str], what: str) -> None:
    for name in names:
        stage.claims[name].what = what


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)
