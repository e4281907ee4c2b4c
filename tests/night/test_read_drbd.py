"""The reader of replicated storage as an image, Debian's own drbdsetup without its kernel module, and what 500 resources cost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack import images
from hack.lib import debian
from hack.lib.command import Failure
from hack.lib.patience import deadline, until
from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from sidecar.failover.door_io import Door
from sidecar.failover.evidence import Snapshot
from tests.harness.not_tested import not_tested
from tests.night.test_image import IN_A_POD, Image, unpacked


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's drbdsetup. The machine has no DRBD."""
    if Path("/proc/drbd").exists():
        not_tested("drbdsetup without its kernel module", "this machine has the module")
    try:
        (program,) = debian.unpacked(["drbd-utils"], tmp_path_factory.mktemp("drbd")).glob("**/sbin/drbdsetup")
    except Failure as lack:
        not_tested("Debian's drbdsetup", str(lack))
    return program


COMMANDS = [
    ("status", "--json"),
    ("show", "--json"),
    ("events2", "--now", "--full"),
    ("events2",),
    ("secondary", "--force", "vol"),
]


def test_without_the_module_exit_codes_prove_nothing(real: Path) -> None:
    done = {words: subprocess.run([real, *words], check=False, capture_output=True, timeout=60) for words in COMMANDS}
    assert {words[0]: each.returncode for words, each in done.items()} == {"status": 20, "show": 20, "events2": 20, "secondary": 0}
    assert not any(each.stdout for each in done.values())


def test_what_is_read_is_what_debians_program_prints(real: Path) -> None:
    """The keys of the model's lines, and so those that are parsed, are among the formats in the program. `open` is newer than Debian 12."""
    formats = real.read_bytes()
    storage = Storage(time.monotonic)
    storage.add("vol", disks=("a", "b"), diskless=("c",))
    keys = {word.partition(":")[0] for line in drbdsetup.events(storage, "a").splitlines() for word in line.split() if ":" in word}
    missing = {key for key in keys if f"{key}:%".encode() not in formats}
    assert missing <= {"open", "upper-pending", "lower-pending"}, missing
    names = ("suspended-quorum", "suspended-user", "force-io-failures", "disk-state", "connection-state", "peer-role", "peer-disk-state")
    assert [name for name in (*names, "peer-client", "quorum") if f'"{name}": '.encode() not in formats] == []


async def _shown(socket: Path) -> Snapshot:
    door = Door(socket, time.monotonic)
    task, end = asyncio.create_task(door.run()), deadline()
    while "show: it ended" not in door.snapshot(time.monotonic()).why:
        assert time.monotonic() < end
        await asyncio.sleep(0.1)
    task.cancel()
    return door.snapshot(time.monotonic())


def shown(command: list[str], environ: dict[str, str], socket: Path) -> Snapshot:
    """What a sidecar knows from a reader that is started like this."""
    with subprocess.Popen(command, env=environ) as child:
        try:
            return asyncio.run(_shown(socket))
        finally:
            child.terminate()


def test_f40_without_the_module_nothing_is_known(real: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": f"{real.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "sidecar", "read-drbd", f"--listen={tmp_path}/drbd.sock", "--release"]
    seen = shown(command, environ, tmp_path / "drbd.sock")
    assert not seen.complete and not seen.resources
    assert seen.why == "events: it ended with 20; status: it ended with 20; show: it ended with 20"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return unpacked(images.drbd(), tmp_path_factory.mktemp("image"))


def test_the_image_reads_on_a_read_only_root(image: Image, tmp_path: Path) -> None:
    places = {"ACCOUNT": "/run/none", "OF_THE_POD": str(tmp_path / "account"), "SOCKETS": str(tmp_path / "sockets")}
    for place in ("account", "sockets"):
        (tmp_path / place).mkdir(mode=0o777)
    (tmp_path / "account" / "token").touch()
    tmp_path.chmod(0o755)
    (tmp_path / "sockets").chmod(0o777)
    entry = image.settings["Entrypoint"]
    command = ["unshare", "--mount", "sh", "-c", IN_A_POD, str(image.root), *entry, "read-drbd", "--listen=/run/csi/drbd.sock", "--release"]
    seen = shown(command, {**os.environ, **image.environment, **places}, tmp_path / "sockets" / "drbd.sock")
    assert "ended with 20" in seen.why


def test_the_image_has_what_it_needs_and_nothing_of_a_sidecars(image: Image) -> None:
    packages = {path.name for path in image.root.glob("opt/read-drbd/lib/*/site-packages/*") if path.suffix != ".dist-info"}
    assert {"sidecar", "csi_proto"} <= packages and not packages & {"grpc", "google", "yaml", "pip", "setuptools"}
    assert (image.root / "usr/sbin/drbdsetup").exists() or (image.root / "sbin/drbdsetup").exists()
    assert not (image.root / "opt/csi-node-sidecar").exists()
    until(lambda: next(image.root.glob("opt/read-drbd/**/reader_io*.pyc"), None), "its bytecode is there")


def test_500_resources_cost_no_more_than_a_third_of_a_second_and_five_mebibytes() -> None:
    """Of three nodes each. Measured in a process of its own, where nothing else is in memory."""
    script = """
import resource, sys, time
from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from sidecar.failover.drbd import Reading
storage = Storage(lambda: 0.0)
settle, storage._settle = storage._settle, lambda: None
for number in range(500):
    storage.add(f"pvc-{number:08x}-9c1f-4d0e-8a6b-0123456789ab", disks=("node-1", "node-2", "node-3"))
settle()
texts = [f(storage, "node-1") for f in (drbdsetup.events, drbdsetup.status, drbdsetup.show)]
def rss():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
reading, before, began = Reading(), rss(), time.process_time()
for kind, text in zip(("events", "status", "show"), texts):
    reading.feed(kind, 0.0, text)
known = reading.snapshot(1.0)
spent = time.process_time() - began
assert known.complete and len(known.resources) == 500
print(spent, rss() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    seconds, kib = done.stdout.split()
    print(f"500 resources: {seconds} s of CPU, {kib} KiB")
    assert float(seconds) <= 0.3 and int(kib) <= 5120
