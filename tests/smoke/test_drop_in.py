"""The program takes the place of external-provisioner: its command line, its environment, its role."""

from __future__ import annotations

import sys
from pathlib import Path

from hack.lib.control_plane import until
from hack.lib.programs import Process, claim, pod
from tests.harness.cluster import CAPACITIES, CLAIMS, OWN_PODS, PODS, Cluster, late


def test_B4_the_command_line_of_the_hostpath_deployment_works_as_it_stands(cluster: Cluster, tmp_path: Path) -> None:
    """Arguments and environment verbatim, under upstream's sample role: capacity is published, and a pod gets its volume."""
    driver = cluster.driver()
    line = (
        f"-v=5 --csi-address={driver.socket} --feature-gates=Topology=true --enable-capacity --capacity-ownerref-level=0 "
        "--node-deployment=true --strict-topology=true --immediate-topology=false --worker-threads=5"
    )
    environ = {"NODE_NAME": "n1", "NAMESPACE": cluster.own_namespace, "POD_NAME": "plugin-0", "KUBECONFIG": str(cluster.role)}
    with driver:
        cluster.node("n1", driver)
        cluster.create(OWN_PODS, pod("plugin-0", nodeName="n1"))
        with Process("hostpath", [sys.executable, "-m", "sidecar", *line.split()], tmp_path, environ=environ) as sidecar:
            until(lambda: [item["capacity"] for item in cluster.items(CAPACITIES)] == ["100Gi"], sidecar.output)
            cluster.create(CLAIMS, claim("data", late(driver)))
            cluster.create(PODS, pod("consumer", "data"))
            cluster.bound("data")
        assert sidecar.child.returncode == 0
