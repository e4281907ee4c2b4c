"""One node: its namespaces, its network, containerd and the kubelet; power on, power off, reboot."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hack.kubelets import cgroups, namespaces, remains
from hack.kubelets.errors import ClusterError
from hack.kubelets.namespaces import ENVIRONMENT, Holder, Program
from hack.kubelets.place import GATEWAY, NodePlace, Place
from hack.kubelets.settings import PROGRAMS, SOCKET
from hack.kubelets.waiting import until

CONTAINERD = Program(
    "containerd",
    # Its shims are found beside it.
    ["env", f"PATH={PROGRAMS}:{ENVIRONMENT['PATH']}", f"{PROGRAMS}/containerd", "--config=/etc/containerd.toml"],
    Path("/run/containerd.pid"),
    Path("/var/log/containerd.log"),
)
IMAGES = [f"{PROGRAMS}/ctr", f"--address={SOCKET}", "--namespace=k8s.io", "images"]


class Node:
    def __init__(self, cluster: Place, place: NodePlace) -> None:
        self._cluster = cluster
        self.place = place

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def is_on(self) -> bool:
        return namespaces.find_holder(self.place.ident) is not None

    @property
    def boot_id(self) -> str:
        """The boot id that the kubelet writes into the node's status."""
        return (self._holder().root / "run/boot-id").read_text().strip()

    # --- power ----------------------------------------------------------------------------------------------------

    def power_on(self) -> None:
        """Starts everything but the kubelet; returns when containers can be run."""
        script = Path(__file__).with_name("hold-node")
        command = [str(script), self.place.ident, self.name, str(self.place.disk), str(self._cluster.programs)]
        outer = self._outer()
        log = self._cluster.logs / f"{self.name}.log"
        holder = namespaces.start_holder(command, self.place.ident, log=log, within=outer)
        self._connect(outer, holder)
        cgroups.make(self.place.ident)
        namespaces.start(holder, CONTAINERD)
        self._await_containerd(holder)

    def power_off(self) -> None:
        """Plays a power failure: no process and no mount survives, and the disk stays as it is."""
        remains.end_processes([self.place.ident])
        cgroups.remove(self.place.ident)
        remains.detach_loops(self.place.folder)
        # The pair of interfaces ends with the node's network, some time later.
        self._outer().run("sh", "-c", 'ip link delete "$0" 2>/dev/null || true', self.name, namespaces=("--net",))

    def reboot(self) -> None:
        self.power_off()
        self.power_on()
        self.start_kubelet()

    def _connect(self, outer: Holder, holder: Holder) -> None:
        """Connects the node to the cluster's bridge. Only the network namespace is entered, because process numbers are the machine's."""
        outer_side = [
            f"link add name {self.name} type veth peer name eth0 netns {holder.pid}",
            f"link set {self.name} master nodes up",
            f"route replace {self.place.pod_range} via {self.place.address}",
        ]
        outer.run("ip", "-batch", "-", namespaces=("--net",), input="\n".join(outer_side))
        inner_side = [f"address add {self.place.address}/24 dev eth0", "link set eth0 up", f"route add default via {GATEWAY}"]
        holder.run("ip", "-batch", "-", namespaces=("--net",), input="\n".join(inner_side))

    def _await_containerd(self, holder: Holder) -> None:
        socket = holder.root / SOCKET.lstrip("/")
        until(lambda: socket.exists() or _gone(holder, CONTAINERD), f"containerd on {self.name}", seconds=30, log=self._log(CONTAINERD))

    # --- programs -------------------------------------------------------------------------------------------------

    def start_kubelet(self) -> None:
        namespaces.start(self._holder(), self._kubelet())

    def kill_kubelet(self) -> None:
        """SIGKILL: the containers go on."""
        namespaces.stop(self._holder(), self._kubelet(), how=signal.SIGKILL)

    def load(self, *archives: Path) -> None:
        """Loads OCI archives as images for pods on this node."""
        command = self._holder().inside(*IMAGES, "import", "-")
        for archive in archives:
            with archive.open("rb") as content:
                done = subprocess.run(command, stdin=content, capture_output=True, text=True, check=False, timeout=300, env=ENVIRONMENT)
            if done.returncode:
                raise ClusterError(f"{archive} could not be loaded on {self.name}: {done.stderr.strip()}")

    def enter(self, *command: str) -> list[str]:
        """The command line that runs this command on the node."""
        return self._holder().inside(*command)

    def run(self, *command: str, input: str | None = None, seconds: float = 60.0) -> str:
        return self._holder().run(*command, input=input, seconds=seconds)

    def _kubelet(self) -> Program:
        command: Sequence[str] = [
            f"{PROGRAMS}/kubelet",
            "--config=/etc/kubelet.json",
            "--kubeconfig=/etc/kubelet.kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={self.place.address}",
            "--cert-dir=/var/lib/kubelet/pki",
        ]
        return Program("kubelet", command, Path("/run/kubelet.pid"), Path("/var/log/kubelet.log"))

    def _log(self, program: Program) -> Path:
        return self.place.disk / str(program.log).lstrip("/")

    def _holder(self) -> Holder:
        if holder := namespaces.find_holder(self.place.ident):
            return holder
        raise ClusterError(f"{self.name} is not running")

    def _outer(self) -> Holder:
        if holder := namespaces.find_holder(self._cluster.ident):
            return holder
        raise ClusterError(f"the cluster {self._cluster.name} is not running")


def _gone(holder: Holder, program: Program) -> bool:
    if namespaces.number_of(holder, program) is None:
        raise ClusterError(f"{program.name} has ended{namespaces.log_end(holder, program)}")
    return False
