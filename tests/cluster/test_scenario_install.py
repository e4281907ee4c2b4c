"""What pages of deploy/ tell a new user to type, typed on two real kubelets; and what the pages promise of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import REPOSITORY, until
from tests.cluster.scenes import DEPLOY, DRIVER, VOLUMES

NAME = "typed"


class Reader:
    """Types the commands of a page's section, one after the other. What is exported stays, and the program can be called by its name."""

    def __init__(self, page: Path, section: str, folder: Path) -> None:
        (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
        blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self._commands = [line for block in blocks for line in block.splitlines()]
        self._exported = folder / "exported"
        self._exported.touch()
        program = folder / "csi-node-sidecar"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m sidecar "$@"\n')
        program.chmod(0o755)
        self._environ = {**os.environ, "CSI_NODE_SIDECAR_CLUSTER": NAME, "PATH": f"{folder}:{os.environ['PATH']}"}

    def until(self, words: str) -> str:
        """Types on, up to the next command that has these words. What that prints; each has to succeed."""
        while self._commands:
            command = self._commands.pop(0)
            script = f". {self._exported}\n{command}\ncode=$?\nexport -p >{self._exported}\nexit $code"
            done = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, env=self._environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if words in command:
                return done.stdout
        raise AssertionError(f"no command has the words {words}")

    def ends(self) -> bool:
        return not self._commands


@pytest.fixture
def folder(alone: None, tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    Cluster.clear(name=NAME)


def test_the_base_is_installed_with_one_command_and_leaves_no_trace(folder: Path) -> None:
    reader = Reader(DEPLOY / "base" / "README.md", "Install", folder)
    pods = reader.until("get -n csi-node-sidecar-example pvc,pods")
    assert (pods.count(" Bound "), pods.count(" Running ")) == (3, 3)
    first = reader.until("tail -n 3 /data/log").splitlines()
    reader.until("delete pod -n csi-node-sidecar-example writer-0")
    last = reader.until("tail -n 3 /data/log").splitlines()
    assert int(last[-1].split()[0]) > int(first[-1].split()[0]), "the pod counts on where it stopped"
    assert reader.until("get pv,csidrivers,csistoragecapacities,storageclasses") == ""
    cluster = Cluster.find(name=NAME)
    for node in cluster.nodes:
        # The kubelet looks for sockets that are gone when it is told so.
        until(lambda node=node: not cluster.get("csinode", node.name)["spec"].get("drivers"), f"{DRIVER} leaves {node.name}")
        found = f"find /var/lib/kubelet/plugins/{DRIVER} {VOLUMES} -mindepth 1 -not -name .journal -not -name '.*.driver'"
        assert node.run("sh", "-c", f"{found}; ls /var/lib/kubelet/plugins_registry").split() == []
        assert "kubernetes.io~csi" not in node.run("cat", "/proc/self/mountinfo")
    reader.until("hack/cluster down")
    assert reader.ends()


def test_csi_driver_host_path_is_swapped_drained_monitored_and_left_as_it_was(folder: Path) -> None:
    reader = Reader(DEPLOY / "examples" / "csi-driver-host-path" / "README.md", "Try it", folder)
    assert reader.until("get -n csi-node-sidecar-example pvc").count(" Bound ") == 3
    assert reader.until("get daemonset csi-hostpathplugin") == "csi-node-sidecar:dev"
    volumes = reader.until("get pv --sort-by=.spec.claimRef.name -L csi-node-sidecar.io/node").splitlines()[1:]
    assert [bool(re.search(r" node-\d$", line)) for line in volumes] == [False, False, False, True], "the fourth names its node"
    pods = reader.until("get pods -n csi-node-sidecar-example").splitlines()[1:]
    assert [line.split()[1:4] for line in pods] == [["1/1", "Running", "0"]] * 4
    assert "\nNothing wrong in what could be asked" in reader.until("csi-node-sidecar check")
    told = reader.until("explain nodes --driver hostpath.csi.k8s.io").splitlines()[1:]
    assert [line.split()[1:4] for line in told] == [["hostpath.csi.k8s.io", "True", "False"]] * 2
    assert reader.until("get pods -l csi-node-sidecar.io/scrape=true").count(" Running ") == 2
    assert "removes conditions hostpath.csi.k8s.io/DrainReady" in reader.until("uninstall --driver hostpath.csi.k8s.io")
    assert reader.until("get pv,csidrivers,csistoragecapacities,storageclasses,validatingadmissionpolicies") == ""
    assert reader.until("get leases") == ""
    assert "csi-node-sidecar.io" not in reader.until("get nodes -o jsonpath=")
    reader.until("hack/cluster down")
    assert reader.ends()
