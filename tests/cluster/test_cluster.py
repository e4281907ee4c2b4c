"""hack/cluster: pods run on its nodes as they do on machines, and nothing is left of it afterwards, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.kubelets.cluster import Cluster
from hack.kubelets.namespaces import all_processes
from hack.lib.control_plane import REPOSITORY, until
from tests.cluster.scenes import BUSYBOX, IMAGES, Installation, image_archives, is_ready

CGROUPS = Path("/sys/fs/cgroup")
UP = "import sys; sys.path.insert(0, '.'); from hack.kubelets.cluster import Cluster; Cluster.up(nodes=1, name='second', leashed=True)"


def hack_cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as somebody at a shell gives it."""
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), "--name", "second", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def outside() -> set[str]:
    """What a cluster could leave on the machine beside processes: mounts, network interfaces, cgroups of all kinds."""
    folders = (CGROUPS, *(tree for tree in CGROUPS.iterdir() if tree.is_dir()), Path("/sys/class/net"))
    return {str(entry) for folder in folders for entry in folder.iterdir()} | {*Path("/proc/self/mountinfo").read_text().splitlines()}


def inside() -> set[tuple[int, str]]:
    """Processes whose namespaces of process numbers are not ours."""
    ours, found = Path("/proc/self/ns/pid").readlink(), set()
    for pid, arguments in all_processes():
        try:
            if Path(f"/proc/{pid}/ns/pid").readlink() != ours:
                found.add((pid, " ".join(arguments)))
        except OSError:
            pass  # it has just ended
    return found


@pytest.fixture
def before(alone: None) -> Iterator[tuple[set[str], set[tuple[int, str]]]]:
    yield outside(), inside()
    Cluster.clear(name="second")


def test_pods_of_two_nodes_reach_each_other_and_the_api_server(base: Callable[[], Installation]) -> None:
    scene = base()
    scripts = {"server": "while echo here | nc -l -p 8080; do true; done", "client": "sleep 3600"}
    for (name, script), node in zip(scripts.items(), scene.nodes, strict=False):
        one = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}
        meta, spec = (
            {"name": name, "namespace": scene.namespace},
            {"nodeName": node, "containers": [one], "terminationGracePeriodSeconds": 0},
        )
        scene.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    until(lambda: all(is_ready(scene.pod(name)) for name in scripts), "both pods run")
    say = ("exec", "client", scene.where, "--", "sh", "-c")
    assert scene.kubectl(*say, f"nc -w 5 {scene.pod('server')['status']['podIP']} 8080") == "here\n"
    asked = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
    assert "HTTP request to an HTTPS server" in scene.kubectl(*say, asked)


def test_down_leaves_nothing(before: tuple[set[str], set[tuple[int, str]]]) -> None:
    up = hack_cluster("up", "--nodes", "1")
    cluster = Cluster.find(name="second")
    assert (up.returncode, up.stdout) == (0, f"{cluster.kubeconfig}\n"), up.stderr
    loaded = hack_cluster("load", *map(str, image_archives(*IMAGES)))
    assert loaded.returncode == 0, loaded.stderr
    assert "node-1" in hack_cluster("kubectl", "get", "nodes").stdout
    assert hack_cluster("node", "node-1", "sh", "-c", "hostname; exit 7").stdout == "node-1\n"
    assert outside() - before[0] and inside() - before[1]
    down = hack_cluster("down")
    assert down.returncode == 0, down.stderr
    assert (outside() - before[0], inside() - before[1]) == (set(), set())
    assert not cluster.place.folder.exists()


def test_a_killed_run_leaves_no_process_and_the_next_one_clears_up(before: tuple[set[str], set[tuple[int, str]]]) -> None:
    with subprocess.Popen([sys.executable, "-c", f"{UP}; print('up', flush=True); sys.stdin.read()"], cwd=REPOSITORY, **PIPED) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "up\n"
        assert inside() - before[1]
        maker.kill()
    until(lambda: not inside() - before[1], "the end of all its processes")
    assert hack_cluster("kubectl", "get", "nodes").returncode == 1
    # One that is killed on its way up leaves no more.
    with subprocess.Popen([sys.executable, "-c", UP], cwd=REPOSITORY) as maker:
        until(lambda: inside() - before[1], "its first process")
        maker.kill()
    until(lambda: not inside() - before[1], "the end of all its processes")
    assert hack_cluster("down").returncode == 0
    assert outside() - before[0] == set()


PIPED = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def test_what_the_machine_lacks_is_named_before_anything_is_begun() -> None:
    # By one who becomes nobody late: a developer's Python may be where nobody may look, and so are the folders of tests.
    script = (
        "import os, sys; sys.path.insert(0, '.'); from hack.kubelets import cluster, needs\n"
        "os.setuid(65534)\ntry: cluster.Cluster.up()\nexcept needs.MachineLacks as lack: print(lack)"
    )
    with tempfile.TemporaryDirectory() as cache:
        Path(cache).chmod(0o777)
        environment = {**os.environ, "CSI_NODE_SIDECAR_CACHE": cache}
        refused = subprocess.run(
            [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True, env=environment
        )
        assert "this machine cannot run a cluster of kubelets:\n  - it is not run as root: run it with sudo" in refused.stdout
        assert list(Path(cache).iterdir()) == []
