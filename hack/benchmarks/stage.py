"""Where both programs are measured: one control plane, one CSI driver that is neither's own, and the same flags for both."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import sidecar
from tests.e2e.actors import GoDriver, Json, Process, Sidecar, storage_class
from tests.e2e.controlplane import REPOSITORY, ControlPlane, binaries

NODE = "bench-node"
CLASS = "late"
OURS, PEER = "csi-node-sidecar", "csi-provisioner"
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
# As drivers deploy them on nodes. -v=2 is also the least at which the peer says that a cache is complete.
FLAGS = ("--node-deployment", "--enable-capacity", "--capacity-ownerref-level=-1", "--feature-gates=Topology=true", "-v=2")
PEERS_CACHES = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSIStorageCapacity")
ENVIRONMENT = {"NODE_NAME": NODE, "NAMESPACE": "default"}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    plane: ControlPlane
    driver: GoDriver
    role: Path
    """A kubeconfig with the rights of upstream's sample role."""
    bin_dir: Path
    work: Path

    def ours(self) -> Sidecar:
        return Sidecar(self.work, node=NODE, address=self.driver.socket, kubeconfig=self.role, args=FLAGS, environ=ENVIRONMENT)

    def peer(self) -> Process:
        places = (f"--csi-address={self.driver.socket}", f"--kubeconfig={self.role}", "--http-endpoint=127.0.0.1:0")
        return Process(PEER, [str(self.bin_dir / PEER), *places, *FLAGS], self.work, environ=ENVIRONMENT)

    def has_capacity(self) -> bool:
        """The proof that a program works, not only runs."""
        return bool(self.plane.request("GET", CAPACITIES)["items"])

    def forget_capacity(self) -> None:
        """The objects outlive the program that made them, and the next one would adopt them."""
        self.plane.request("DELETE", CAPACITIES)

    def versions(self) -> dict[str, str]:
        server: Json = self.plane.request("GET", "/version")
        asked = subprocess.run([self.bin_dir / PEER, "--version"], capture_output=True, text=True, check=False)
        libraries = ("kubernetes", "aiohttp", "grpcio", "protobuf", "prometheus-client")
        return {
            OURS: sidecar.__version__,
            PEER: (asked.stdout or asked.stderr).split()[-1],
            "kube-apiserver": str(server["gitVersion"]),
            "Python": python_version(),
            **{name: version(name) for name in libraries},
        }


def is_synced(program: Process) -> bool:
    """Everything it watches has been listed once. Ours answers that by /readyz, the peer has no such page and writes it to its log."""
    if isinstance(program, Sidecar):
        return program.ready()
    complete = [line for line in program.output().splitlines() if "Caches populated" in line]
    return all(any(f'type="*v1.{kind}"' in line for line in complete) for kind in PEERS_CACHES)


@contextmanager
def a_stage(work: Path, *, say: Say) -> Iterator[Stage]:
    """Everything is started, nothing of what is to be measured."""
    bin_dir = binaries("core", "mock-driver", PEER)
    say("starting etcd, kube-apiserver and the CSI driver")
    with ControlPlane(bin_dir, work / "plane") as plane, GoDriver(work, node=NODE, binary=bin_dir / "mock-driver") as driver:
        plane.apply((REPOSITORY / "tests" / "e2e" / "upstream-role.yaml").read_text())
        plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class(CLASS, driver.driver, "WaitForFirstConsumer"))
        role = plane.kubeconfig_for(namespace="default", service_account="csi-provisioner")
        _compile_bytecode()
        yield Stage(plane, driver, role, bin_dir, work)


def _compile_bytecode() -> None:
    """An image carries it; without, the first start would be measured with the compiler in it."""
    subprocess.run([sys.executable, "-c", "import sidecar.process, sidecar.cli"], cwd=REPOSITORY, check=True)
