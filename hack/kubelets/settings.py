"""The configuration files of a node's programs, as texts, with the reason beside each value. Nothing here reads or writes files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hack.kubelets.place import NodePlace

Json = dict[str, Any]

# Where a node finds the programs, on its own disk's tree.
PROGRAMS = "/opt/csi-node-sidecar"
PAUSE_IMAGE = "docker.io/library/pause:dev"
SOCKET = "/run/containerd/containerd.sock"


def kubelet(node: NodePlace) -> str:
    config: Json = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": "127.0.0.1",
        # Anonymous requests are allowed: only the cluster itself is in this network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.ident}",  # so that what a container leaves behind can be told from others'
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        # A developer's full disk or swap is no reason to turn pods away.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,  # images are loaded, not pulled: one that is removed never comes back
        "imageGCLowThresholdPercent": 99,
        "localStorageCapacityIsolation": False,
        "maxPods": 200,
        "oomScoreAdj": 0,  # a lower one needs a capability that not every root has
        "resolvConf": "",  # there is no name service
        "registerNode": True,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # by default below /usr, which is the machine's
    }
    return json.dumps(config, indent=1)


def containerd(*, snapshotter: str) -> str:
    """Version 2 of the format, which containerd 2 understands as well."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0

[grpc]
address = "{SOCKET}"

[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
# Without it a machine that lacks CAP_SYS_RESOURCE loses every pod to "can't get final child's PID from pipe".
restrict_oom_score_adj = true
# A profile would be loaded into this machine's kernel, and stay there.
disable_apparmor = true

[{cri}.cni]
bin_dir = "{PROGRAMS}"
conf_dir = "/etc/cni/net.d"

[{cri}.containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
BinaryName = "{PROGRAMS}/runc"
SystemdCgroup = false
"""


def pod_network(node: NodePlace) -> str:
    """A bridge for the node's pods. Other traffic goes through the node, which routes it; no address is translated."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/pod-addresses",  # forgotten in a reboot, as the pods' networks are
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}, indent=1)


def files_of(node: NodePlace, *, snapshotter: str) -> Mapping[str, str]:
    """The files on a new node's disk, by path."""
    return {
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": "root:x:0:\n",
        "etc/hosts": f"127.0.0.1 localhost\n{node.address} {node.name}\n",
        "etc/hostname": f"{node.name}\n",
        "etc/nsswitch.conf": "hosts: files\n",
        "etc/resolv.conf": "",
        "etc/cni/net.d/10-pods.conflist": pod_network(node),
        "etc/containerd.toml": containerd(snapshotter=snapshotter),
        "etc/kubelet.json": kubelet(node),
    }
