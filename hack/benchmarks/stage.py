"""Where both programs are measured: one control plane, one CSI driver that both talk to, and the same flags for both."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from types import MappingProxyType

import sidecar
from hack.lib.control_plane import REPOSITORY, ControlPlane, binaries
from hack.lib.programs import GoDriver, Json, OurDriver, Process, Sidecar, storage_class

NODE = "bench-node"
CLASS = "late"
SERVICE_ACCOUNT = "csi-provisioner"
OURS, PEER = "csi-node-sidecar", "csi-provisioner"
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
# As drivers deploy them on nodes. -v=2 is also the least at which the peer says that a cache is complete.
FLAGS = ("--node-deployment", "--enable-capacity", "--capacity-ownerref-level=-1", "--feature-gates=Topology=true", "-v=2")
PEERS_CACHES = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSIStorageCapacity")
ENVIRONMENT = {"NODE_NAME": NODE, "NAMESPACE": "default"}
START_LIMIT = 120.0
POLL = 0.02

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ground:
    """What outlives a driver: the control plane, and the rights both programs have there."""

    plane: ControlPlane
    role: Path
    """A kubeconfig with the rights of upstream's sample role."""
    bin_dir: Path

    def stage(self, driver: GoDriver | OurDriver, work: Path) -> Stage:
        return Stage(self.plane, self.role, self.bin_dir, driver, work)

    def versions(self) -> dict[str, str]:
        server: Json = self.plane.request("GET", "/version")
        asked = subprocess.run([self.bin_dir / PEER, "--version"], capture_output=True, text=True, check=False)
        libraries = ("kubernetes", "grpcio", "protobuf", "prometheus-client")
        return {
            OURS: sidecar.__version__,
            PEER: (asked.stdout or asked.stderr).split()[-1],
            "kube-apiserver": str(server["gitVersion"]),
            "Python": python_version(),
            **{name: version(name) for name in libraries},
        }


@dataclass(frozen=True)
class Stage(Ground):
    driver: GoDriver | OurDriver
    work: Path

    def ours(self, *flags: str) -> Sidecar:
        args = (*FLAGS, *flags)
        return Sidecar(self.work, node=NODE, address=self.driver.socket, kubeconfig=self.role, args=args, environ=ENVIRONMENT)

    def peer(self, *flags: str) -> Process:
        places = (f"--csi-address={self.driver.socket}", f"--kubeconfig={self.role}", "--http-endpoint=127.0.0.1:0")
        return Process(PEER, [str(self.bin_dir / PEER), *places, *FLAGS, *flags], self.work, environ=ENVIRONMENT)

    def has_capacity(self) -> bool:
        """The proof that a program works, not only runs."""
        return bool(self.plane.request("GET", CAPACITIES)["items"])

    def forget_capacity(self) -> None:
        """The objects outlive the program that made them, and the next one would adopt them."""
        self.plane.request("DELETE", CAPACITIES)


def is_synced(program: Process) -> bool:
    """Everything it watches has been listed once. Ours answers that by /readyz, the peer has no such page and writes it to its log."""
    if isinstance(program, Sidecar):
        return program.ready()
    complete = [line for line in program.output().splitlines() if "Caches populated" in line]
    return all(any(f'type="*v1.{kind}"' in line for line in complete) for kind in PEERS_CACHES)


def wait(condition: Callable[[], bool], process: Process, complaint: str) -> None:
    """Until it comes true; the end of the benchmark if it does not."""
    deadline = time.monotonic() + START_LIMIT
    while not condition():
        if process.child.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"hack/bench: {process.name} {complaint}; the end of its log:\n{process.output()[-4000:]}")
        time.sleep(POLL)


def new_file(word: str) -> Path:
    """For argparse: where a result is to be written, said before the hours in which it is measured."""
    file = Path(word)
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{word} cannot be written")
    return file


def new_folder(word: str) -> Path:
    """For argparse: a folder that is to be made."""
    folder = Path(word).absolute()
    if folder.exists() or not os.access(folder.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{word} exists already, or cannot be made")
    return folder


def count(word: str) -> int:
    """For argparse."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def positive(word: str) -> float:
    """For argparse."""
    number = float(word)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError("must be more than 0")
    return number


def not_negative(word: str) -> float:
    """For argparse."""
    number = float(word)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError("must be at least 0")
    return number


def words_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """For argparse: some of these, divided by commas."""

    def read(word: str) -> list[str]:
        unknown = [part for part in word.split(",") if part not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}, only {', '.join(known)}")
        return word.split(",")

    return read


@contextmanager
def a_ground(
    work: Path, *parts: str, components: Sequence[str] = (), extra_args: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[Ground]:
    """`parts` are built besides the servers and the peer, `components` started besides etcd and the API server."""
    bin_dir = binaries("core", PEER, *parts)
    with ControlPlane(bin_dir, work / "plane", components=components, extra_args=extra_args) as plane:
        plane.apply((REPOSITORY / "tests" / "e2e" / "upstream-role.yaml").read_text())
        role = plane.kubeconfig_for(namespace="default", service_account=SERVICE_ACCOUNT)
        _compile_bytecode()
        yield Ground(plane, role, bin_dir)


@contextmanager
def a_stage(work: Path, *, say: Say) -> Iterator[Stage]:
    """Everything is started, nothing of what is to be measured."""
    say("starting etcd, kube-apiserver and the CSI driver")
    with a_ground(work, "mock-driver") as ground, GoDriver(work, node=NODE, binary=ground.bin_dir / "mock-driver") as driver:
        new_class(ground.plane, driver.driver)
        yield ground.stage(driver, work)


def new_class(plane: ControlPlane, driver: str) -> None:
    plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class(CLASS, driver, "WaitForFirstConsumer"))


def _compile_bytecode() -> None:
    """An image carries it; without, the first start would be measured with the compiler in it."""
    subprocess.run([sys.executable, "-c", "import sidecar.process, sidecar.cli"], cwd=REPOSITORY, check=True)
