"""One node: its namespaces, its network, containerd and the kubelet; power on, power off, reboot."""

from __future__ import annotations

import shutil
from pathlib import Path

from hack.kubelets import namespaces, remains
from hack.kubelets.namespaces import Holder, Program, holder_of
from hack.kubelets.place import GATEWAY, NodePlace, Place
from hack.kubelets.settings import PROGRAMS, SOCKET
from hack.lib.command import Failure, tail
from hack.lib.patience import until

CONTAINERD = Program([f"{PROGRAMS}/containerd", "--config=/etc/containerd.toml"], Path("/var/log/containerd.log"))
IMPORT = [f"{PROGRAMS}/ctr", f"--address={SOCKET}", "--namespace=k8s.io", "images", "import"]


class Node:
    def __init__(self, cluster: Place, place: NodePlace) -> None:
        self._cluster = cluster
        self.place = place
        options = [f"--hostname-override={place.name}", f"--node-ip={place.address}", "--cert-dir=/var/lib/kubelet/pki"]
        files = ["--config=/etc/kubelet.json", "--kubeconfig=/etc/kubelet.kubeconfig"]
        self._kubelet = Program([f"{PROGRAMS}/kubelet", *files, *options], Path("/var/log/kubelet.log"))

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def boot_id(self) -> str:
        """The boot id that the kubelet writes into the node's status."""
        return self._holder().path("/run/boot-id").read_text().strip()

    # --- power ----------------------------------------------------------------------------------------------------

    def power_on(self) -> None:
        """Starts everything but the kubelet; returns when containers can be run."""
        script = Path(__file__).with_name("hold-node")
        command = [str(script), self.place.ident, self.name, str(self.place.disk), str(self._cluster.programs)]
        outer = holder_of(self._cluster.ident)
        namespaces.start_holder(command, self.place.ident, log=self._cluster.logs / f"{self.name}.log", within=outer)
        holder = self._holder()
        self._connect(outer, holder)
        remains.make_cgroups(self.place.ident)
        namespaces.start(holder, CONTAINERD)
        self._await_containerd(holder)

    def power_off(self) -> None:
        """Plays a power failure: no process and no mount survives, and the disk stays as it is."""
        remains.end(self.place.ident)
        remains.remove_cgroups(self.place.ident)
        # The pair of interfaces ends with the node's network, some time later.
        forget = 'ip link delete "$0" 2>/dev/null || true'
        holder_of(self._cluster.ident).run("sh", "-c", forget, self.name, namespaces=("--net",))

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
        log = holder.path(CONTAINERD.log)

        def serves() -> bool:
            if not namespaces.number_of(holder, CONTAINERD):
                raise Failure(f"containerd on {self.name} has ended; {tail(log)}")
            return holder.path(SOCKET).exists()

        until(serves, f"containerd on {self.name}", log=log)

    # --- programs -------------------------------------------------------------------------------------------------

    def start_kubelet(self) -> None:
        namespaces.start(self._holder(), self._kubelet)

    def kill_kubelet(self) -> None:
        """SIGKILL: the containers go on."""
        namespaces.kill(self._holder(), self._kubelet)

    def load(self, *archives: Path) -> None:
        """Loads OCI archives as images for pods on this node, by way of its disk."""
        copy = self.place.disk / "image.tar"
        for archive in archives:
            shutil.copyfile(archive, copy)
            self.run(*IMPORT, f"/{copy.name}")
        copy.unlink()

    def enter(self, *command: str) -> list[str]:
        """The command line that runs this command on the node."""
        return self._holder().inside(*command)

    def run(self, *command: str, input: str | None = None) -> str:
        return self._holder().run(*command, input=input)

    def _holder(self) -> Holder:
        return holder_of(self.place.ident)
