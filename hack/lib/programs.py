"""Programs that tests and measurements run beside a control plane: the sidecar, its peer and CSI drivers, each as a real process.

They are started, stopped and queried here; what they should do is said in the tests.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from hack.lib.patience import LIMIT, until
from hack.lib.processes import Process, free_ports
from hack.lib.processes import all_of as all_of
from hack.sim.driver.calls import fault_of

Json = dict[str, Any]
OURS, PEER = "csi-node-sidecar", "csi-provisioner"
LATE, IMMEDIATE = "WaitForFirstConsumer", "Immediate"


class Sidecar(Process):
    """The program under test. It serves health and metrics on a free port."""

    def __init__(
        self,
        work: Path,
        *,
        node: str,
        address: Path | str,
        kubeconfig: Path | str,
        args: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        speed: float = 1.0,
    ) -> None:
        """`speed`: how many times faster its own clock runs (`hack.lib.paced`)."""
        (self.port,) = free_ports(1)
        command = [
            *(sys.executable, "-m"),
            *(("sidecar",) if speed == 1.0 else ("hack.lib.paced", str(speed))),
            f"--csi-address={address}",
            "--node-deployment",
            f"--http-endpoint=127.0.0.1:{self.port}",
            f"--debug-endpoint=127.0.0.1:{self.port}",
            f"--kubeconfig={kubeconfig}",
            "-v=4",
            *args,
        ]
        super().__init__(f"sidecar-{node}", command, work, environ={"NODE_NAME": node, **(environ or {})})

    def page(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 when nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        return self.page("/readyz")[0] == 200

    def until_ready(self) -> Self:
        self.until(self.ready, lambda: f"{self.name} ready; it says {self.page('/readyz')}")
        return self

    def metric(self, name: str, /, **labels: str) -> float:
        """The sum of the series of that name that have these labels. There must be one of that name, with whatever labels."""
        status, text = self.page("/metrics")
        assert status == 200, f"the metrics of {self.name}: status {status}\n{self.output()}"
        series = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
        assert series, f"{self.name} has no metric {name}:\n{text}"
        return sum(float(value) for has, value in series if all(f'{key}="{wanted}"' in has for key, wanted in labels.items()))

    def records(self, letters: str = "IWEF") -> list[str]:
        """The log's lines of these severities. A line that is no log line is part of a traceback, and fails the test."""
        lines = self.output().splitlines()
        odd = [line for line in lines if not re.match(r"[IWEF]\d{4} ", line)]
        assert not odd, f"{self.name} wrote what is no log record:\n{self.output()}"
        return [line for line in lines if line[0] in letters]


class Peer(Process):
    """external-provisioner, which users ran before and may go back to."""

    def __init__(
        self,
        work: Path,
        *,
        binary: Path,
        node: str,
        address: Path | str,
        kubeconfig: Path | str,
        args: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        places = (f"--csi-address={address}", f"--kubeconfig={kubeconfig}", "--http-endpoint=127.0.0.1:0")
        command = [str(binary), "--node-deployment", "--feature-gates=Topology=true", "-v=4", *places, *args]
        super().__init__(f"peer-{node}", command, work, environ={"NODE_NAME": node, **(environ or {})})
        kinds = ["PersistentVolumeClaim", "PersistentVolume", "StorageClass"]
        self._caches = [*kinds, "CSIStorageCapacity"] if "--enable-capacity" in args else kinds

    def ready(self) -> bool:
        """Everything it watches has been listed once. It has no page that says so, and writes it to its log from -v=2 on."""
        complete = [line for line in self.output().splitlines() if "Caches populated" in line]
        return all(any(f'type="*v1.{kind}"' in line for line in complete) for kind in self._caches)


def provisioner(program: str, work: Path, *, bin_dir: Path, **told: Any) -> Sidecar | Peer:
    """This program or its peer, told the same."""
    return Peer(work, binary=bin_dir / PEER, **told) if program == PEER else Sidecar(work, **told)


class Driver(Process):
    """A CSI driver, which is there when its socket takes connections."""

    socket: Path

    def start(self) -> Self:
        super().start()
        until(lambda: connects(self.socket), lambda: f"{self.name} serves:\n{self.output()}")
        return self


class OurDriver(Driver):
    """The driver of `hack.sim`, served; its state and its calls are in files that outlive it."""

    def __init__(
        self,
        work: Path,
        *,
        node: str,
        name: str = "ours.csi-node-sidecar.io",
        pools: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
    ) -> None:
        self.driver, self.node = name, node
        self.key = f"topology.{name}/node"
        self.socket = work / f"{node}.sock"
        self.state, self.calls, self.faults = work / f"{node}.state", work / f"{node}.calls", work / f"{node}.faults"
        pool_args = [f"--pool={pool}={size}" for pool, size in (pools or {"main": "100Gi"}).items()]
        command = [
            *(sys.executable, "-m", "hack.sim.driver.serve"),
            *(f"--endpoint={self.socket}", f"--name={name}", f"--node-id={node}", f"--topology={self.key}={node}"),
            *(f"--state={self.state}", f"--calls={self.calls}", f"--faults={self.faults}"),
            *pool_args,
            *args,
        ]
        super().__init__(f"driver-{node}", command, work)

    def recorded(self, method: str) -> list[Json]:
        """Every call of that method, over all lives of the driver."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [call for line in lines if line and (call := json.loads(line)).get("method", "") == method]

    def misbehave(self, *faults: Json) -> None:
        """Sets the driver's faults from now on, written as in `hack.sim.driver.calls`; without any, nothing goes wrong."""
        for fault in faults:
            fault_of(fault)  # the driver would only complain in its log
        draft = self.faults.with_suffix(".draft")
        draft.write_text(json.dumps(faults))
        draft.replace(self.faults)


class GoDriver(Driver):
    """Kubernetes' own end-to-end mock driver. Its space is infinite and its topology a constant."""

    key, topology = "io.kubernetes.storage.mock/node", "some-mock-node"

    def __init__(self, work: Path, *, node: str, binary: Path, name: str = "mock.csi-node-sidecar.io") -> None:
        self.driver, self.node = name, node
        self.socket = work / f"{node}.sock"
        command = [str(binary), f"--endpoint={self.socket}", f"--driver-name={self.driver}", f"--node-id={node}", "--v=3"]
        super().__init__(f"driver-{node}", command, work)


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def storage_class(name: str, driver: str, binding: str, **parameters: str) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": driver,
        "volumeBindingMode": binding,
        "parameters": parameters,
    }


def claim(name: str, class_: str, *, size: str = "1Gi", annotations: Mapping[str, str] | None = None) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def volume(name: str, class_: str, *, driver: str, handle: str, claimed: Mapping[str, str], at: tuple[str, str]) -> Json:
    """As a provisioner makes it for that claim; `at`: the topology key and value of its node."""
    key, value = at
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", **claimed},
        "csi": {"driver": driver, "volumeHandle": handle},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": class_,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def pod(name: str, *claims: str, **spec: Any) -> Json:
    volumes = [{"name": item, "persistentVolumeClaim": {"claimName": item}} for item in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "terminationGracePeriodSeconds": 0, **spec},
    }
