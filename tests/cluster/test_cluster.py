"""hack/cluster: pods run on its nodes as they do on machines, its nodes break as machines do, and nothing is left of it afterwards."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import REPOSITORY, until
from hack.lib.patience import patient
from tests.cluster.conftest import errors, hack_cluster, kubelets, pod
from tests.cluster.leftovers import carriers, family, survivors, traces
from tests.e2e.conftest import from_hack

Json = dict[str, Any]
FOREVER = ("sh", "-c", "sleep 3600")


@pytest.fixture
def run(cluster: Any) -> Iterator[Callable[[Json], Json]]:
    """Makes a pod and returns it when it is Ready; what was made is removed."""
    names: list[str] = []

    def make(wanted: Json, *, condition: str = "Ready") -> Json:
        name = wanted["metadata"]["name"]
        names.append(name)
        cluster.kubectl("apply", "--filename=-", input=json.dumps(wanted))
        cluster.kubectl("wait", f"--for=condition={condition}", f"pod/{name}", f"--timeout={patient(60):.0f}s", seconds=patient(70))
        return dict(cluster.get("pod", name))

    yield make
    if names:
        cluster.kubectl("delete", "pod", "--ignore-not-found", "--force", "--grace-period=0", *names)


def said_by(cluster: Any, name: str, *command: str) -> str:
    return str(cluster.kubectl("exec", name, "--", *command))


# --- pods ---------------------------------------------------------------------------------------------------------


def test_pods_of_two_nodes_reach_each_other_and_the_api_server(cluster: Any, run: Callable[..., Json]) -> None:
    server = run(pod("server", "sh", "-c", "while echo here | nc -l -p 8080; do true; done", node="node-1"))
    client = run(pod("client", *FOREVER, node="node-2"))
    on_host = run(pod("on-host", *FOREVER, node="node-2", spec={"hostNetwork": True}))
    assert server["status"]["podIP"].startswith("10.244.1.")
    assert client["status"]["podIP"].startswith("10.244.2.")
    assert on_host["status"]["podIP"] == on_host["status"]["hostIP"]
    for name in ("client", "on-host"):
        assert said_by(cluster, name, "nc", "-w", "5", server["status"]["podIP"], "8080") == "here\n"
        asked = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
        assert "HTTP request to an HTTPS server" in said_by(cluster, name, "sh", "-c", asked)


def test_a_projected_token_is_short_lived_and_the_service_accounts_own(cluster: Any, run: Callable[..., Json]) -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    spec = {"volumes": [{"name": "token", "projected": {"sources": [source]}}]}
    run(pod("holder", *FOREVER, spec=spec, container={"volumeMounts": [{"name": "token", "mountPath": "/token"}]}))
    token = said_by(cluster, "holder", "cat", "/token/token")
    claims = token.split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert said["exp"] - said["iat"] == 600
    kubectl = [word for word in cluster.kubectl_command() if not word.startswith("--kubeconfig")]
    server = cluster.kubectl("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    options = [f"--server={server}", f"--token={token}", "--insecure-skip-tls-verify", "--kubeconfig=/dev/null"]
    asked = subprocess.run([*kubectl, *options, "auth", "whoami", "--output=json"], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(asked.stdout)["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"


def test_a_containers_memory_limit_holds(cluster: Any, run: Callable[..., Json]) -> None:
    limited = {"resources": {"limits": {"memory": "32Mi"}}}
    wanted = pod("greedy", "sh", "-c", "tail /dev/zero", spec={"restartPolicy": "Never"}, container=limited)
    run(wanted, condition="PodReadyToStartContainers")

    def ended() -> Json:
        statuses = cluster.get("pod", "greedy")["status"].get("containerStatuses", [{}])
        return dict(statuses[0].get("state", {}).get("terminated", {}))

    # The one that is killed is the shell's child, or the shell.
    assert until(ended, "the end of the pod", seconds=30)["exitCode"] == 137


def test_what_pods_write_to_the_node_stays_in_the_clusters_folder(cluster: Any, run: Callable[..., Json]) -> None:
    spec = {"volumes": [{"name": "data", "hostPath": {"path": "/data-of-a-driver", "type": "DirectoryOrCreate"}}]}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    run(pod("writer", "sh", "-c", "echo written > /data/file; sleep 3600", node="node-1", spec=spec, container=mounts))
    assert (cluster.node("node-1").place.disk / "data-of-a-driver" / "file").read_text() == "written\n"
    assert not (cluster.node("node-2").place.disk / "data-of-a-driver").exists()
    assert not Path("/data-of-a-driver").exists()


def test_a_mount_made_in_a_pod_is_the_nodes_and_not_the_machines(cluster: Any, run: Callable[..., Json]) -> None:
    spec = {"volumes": [{"name": "plugin", "hostPath": {"path": "/var/lib/mounts-of-a-driver", "type": "DirectoryOrCreate"}}]}
    mount = {"name": "plugin", "mountPath": "/mounts", "mountPropagation": "Bidirectional"}
    privileged = {"volumeMounts": [mount], "securityContext": {"privileged": True}}
    script = "mkdir -p /mounts/one; mount -t tmpfs tmpfs /mounts/one; sleep 3600"
    run(pod("mounter", "sh", "-c", script, node="node-1", spec=spec, container=privileged))
    shown = "/var/lib/mounts-of-a-driver/one"
    until(lambda: shown in cluster.node("node-1").run("cat", "/proc/self/mounts"), "the mount to be seen on the node")
    assert shown not in Path("/proc/self/mounts").read_text()
    cluster.node("node-1").run("umount", shown)


def test_settings_a_kubelet_would_change_for_the_whole_machine_stay(cluster: Any) -> None:
    setting = Path("/proc/sys/kernel/panic")
    before = setting.read_text()
    cluster.node("node-1").run("sh", "-c", f"test $(cat {setting}) = 10; echo 11 > {setting}")
    assert setting.read_text() == before
    cluster.node("node-1").run("sh", "-c", f"echo 10 > {setting}")


# --- what happens to nodes ----------------------------------------------------------------------------------------


def test_a_killed_kubelet_is_missed_while_its_containers_go_on(cluster: Any, run: Callable[..., Json]) -> None:
    before = run(pod("bystander", *FOREVER, node="node-1"))["status"]["containerStatuses"][0]
    node = cluster.node("node-1")
    node.kill_kubelet()
    until(lambda: readiness(cluster, "node-1") == "Unknown", "the node to be missed", seconds=60)
    assert "sleep" in node.run("ps", "-e", "-o", "comm")
    node.start_kubelet()
    until(lambda: readiness(cluster, "node-1") == "True", "the node to be back", seconds=60)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/bystander", f"--timeout={patient(30):.0f}s", seconds=patient(40))
    after = cluster.get("pod", "bystander")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def readiness(cluster: Any, node: str) -> str:
    conditions = cluster.get("node", node)["status"]["conditions"]
    return str(next(item["status"] for item in conditions if item["type"] == "Ready"))


def test_a_reboot_ends_processes_and_mounts_and_keeps_the_disk(cluster: Any, run: Callable[..., Json]) -> None:
    run(pod("sailor", *FOREVER, node="node-2"))
    node = cluster.node("node-2")
    node.run("sh", "-c", "echo kept > /var/lib/kept; echo lost > /run/lost; mkdir -p /mnt; mount -t tmpfs tmpfs /mnt")
    boot = node.boot_id
    processes = family(from_hack("kubelets.namespaces").find_holder(node.place.ident).pid)
    assert len(processes) >= 6  # the first one, containerd, the kubelet, and the pod's
    node.reboot()
    assert survivors(processes) == []
    assert node.run("cat", "/var/lib/kept") == "kept\n"
    assert node.run("sh", "-c", "ls /run/lost 2>&1 || true").startswith("ls: cannot access")
    assert " /mnt " not in node.run("cat", "/proc/self/mounts")
    cluster.await_ready()
    assert node.boot_id != boot
    assert cluster.get("node", "node-2")["status"]["nodeInfo"]["bootID"] == node.boot_id

    def restarted() -> bool:
        (status,) = cluster.get("pod", "sailor")["status"]["containerStatuses"]
        return bool(status["restartCount"] == 1 and status["ready"])

    until(restarted, "the pod to be back", seconds=60)


def test_the_api_server_goes_and_comes_back(cluster: Any) -> None:
    with cluster.without_api(), pytest.raises(errors.ClusterError, match="failed"):
        cluster.kubectl("get", "nodes", "--request-timeout=5s")
    assert len(cluster.get("nodes")["items"]) == 2
    cluster.await_ready()


def test_what_is_deaf_to_its_order_to_end_is_killed(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    namespaces = from_hack("kubelets.namespaces")
    holder = namespaces.find_holder(cluster.place.ident)
    folder = cluster.place.folder
    listening = folder / "deaf.listens-no-more"
    deaf = ["sh", "-c", 'trap "" TERM; touch "$0"; while true; do sleep 1; done', str(listening)]
    program = namespaces.Program("deaf", deaf, folder / "deaf.pid", cluster.place.logs / "deaf.log")
    namespaces.start(holder, program)
    until((holder.root / str(listening).lstrip("/")).exists, "its deafness")
    namespaces.stop(holder, program, patience=1)
    assert namespaces.number_of(holder, program) is None
    assert "deaf goes on 1 s after SIGTERM: it is killed" in capsys.readouterr().err


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_hands_on_input_output_and_exit_codes(cluster: Any) -> None:
    which = ("--name", cluster.place.name, "--dir", str(cluster.place.folder))
    manifest = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-command"}})
    made = hack_cluster(*which, "kubectl", "create", "--output=name", "-f", "-", input=manifest)
    assert (made.stdout, made.returncode) == ("configmap/by-command\n", 0)
    refused = hack_cluster(*which, "kubectl", "create", "-f", "-", input=manifest)
    assert (refused.stdout, refused.returncode) == ("", 1)
    assert "already exists" in refused.stderr
    cluster.kubectl("delete", "configmap", "by-command")
    assert hack_cluster(*which, "node", "node-2", "enter", "sh", "-c", "cat; hostname; exit 7", input="in\n").stdout == "in\nnode-2\n"
    assert hack_cluster(*which, "node", "node-2", "enter", "sh", "-c", "exit 7").returncode == 7
    assert hack_cluster(*which, "node", "node-1", "path").stdout == f"{cluster.node('node-1').place.disk}\n"


@pytest.mark.parametrize("words", ["-n other get pods", "exec one -- ls -l -- x", "--help", "get --name z", ""])
def test_what_is_for_another_program_is_not_taken_for_ours(words: str) -> None:
    parser = from_hack("kubelets.command").parser("")
    wanted = parser.parse_args(["--name", "mine", "kubectl", *words.split()])
    assert (wanted.name, wanted.arguments) == ("mine", words.split())
    wanted = parser.parse_args(["--name", "mine", "node", "node-1", "enter", *words.split()])
    assert (wanted.name, wanted.command) == ("mine", words.split())


def test_kubectl_leaves_nothing_in_the_home_folder(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    which = ("--name", cluster.place.name, "--dir", str(cluster.place.folder))
    assert "node-1" in hack_cluster(*which, "kubectl", "get", "nodes").stdout
    assert list(tmp_path.iterdir()) == []


def test_the_command_tells_what_cannot_be(cluster: Any, tmp_path: Path) -> None:
    which = ("--name", cluster.place.name, "--dir", str(cluster.place.folder))
    assert "there is no node node-9: there are node-1, node-2" in hack_cluster(*which, "node", "node-9", "path").stderr
    (tmp_path / "image.tar").write_text("no image")
    loaded = hack_cluster(*which, "load", str(tmp_path / "image.tar"))
    assert loaded.returncode == 1
    assert "could not be loaded on node-" in loaded.stderr
    again = hack_cluster(*which, "up")
    assert "is running already" in again.stderr
    nowhere = hack_cluster("--dir", str(tmp_path / "nowhere"), "kubectl", "get", "nodes")
    assert (nowhere.returncode, "no cluster default is running here" in nowhere.stderr) == (1, True)


# --- what is left -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(machine: None, tmp_path: Path) -> Iterator[Path]:
    """A second cluster's, beside the one of all other tests."""
    yield tmp_path / "second"
    kubelets.Cluster.clear(name="second", folder=tmp_path / "second")


def second(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return hack_cluster("--name", "second", "--dir", str(folder), *arguments)


def attach_loop(node: Any) -> None:
    """As a kubelet does for a volume without a file system."""
    node.run("sh", "-c", "truncate -s 1M /var/lib/block; losetup --find /var/lib/block")


def ident_of(folder: Path) -> str:
    return str(from_hack("kubelets.place").place_of("second", folder).ident)


def holder_of(folder: Path) -> int:
    return int(from_hack("kubelets.namespaces").find_holder(ident_of(folder)).pid)


def all_of(folder: Path) -> set[tuple[int, str]]:
    """A node's first process was started from outside: it is in the cluster's namespaces and not below its first process."""
    return family(*carriers(ident_of(folder)))


def test_down_leaves_nothing_and_disturbs_no_other_cluster(cluster: Any, folder: Path) -> None:
    before, untouched = traces("second"), cluster.node("node-1").boot_id
    up = second(folder, "up", "--nodes", "1")
    assert (up.returncode, up.stdout) == (0, f"{folder}/kubeconfig\n"), up.stderr
    running = kubelets.Cluster.find(name="second", folder=folder)
    assert [item["metadata"]["name"] for item in running.get("nodes")["items"]] == ["node-1"]
    attach_loop(running.node("node-1"))
    assert set(traces("second").beyond(before)) >= {"loops", "cgroups"}
    processes = all_of(folder)
    down = second(folder, "down")
    assert down.returncode == 0, down.stderr
    assert survivors(processes) == []
    assert traces("second").beyond(before) == {}
    assert sorted(folder.parent.iterdir()) == []
    assert cluster.node("node-1").boot_id == untouched
    assert len(cluster.get("nodes")["items"]) == 2


def test_a_killed_cluster_ends_whole_and_the_next_one_clears_up(machine: None, folder: Path) -> None:
    before = traces("second")
    assert second(folder, "up", "--nodes", "1").returncode == 0
    attach_loop(kubelets.Cluster.find(name="second", folder=folder).node("node-1"))
    holder = holder_of(folder)
    processes = all_of(folder)
    assert len(processes) >= 9  # four of the control plane, its door, and at least four of the node
    parent = int(Path(f"/proc/{holder}/stat").read_text().rpartition(")")[2].split()[1])
    assert Path(f"/proc/{parent}/comm").read_text() == "unshare\n"
    os.kill(parent, signal.SIGKILL)
    until(lambda: survivors(processes) == [], "the end of all processes")
    assert second(folder, "kubectl", "get", "nodes").returncode == 1
    assert second(folder, "up", "--nodes", "1").returncode == 0
    assert not traces("second").beyond(before).get("loops")
    assert second(folder, "down").returncode == 0
    assert traces("second").beyond(before) == {}


@pytest.mark.parametrize("after", [0.3, 3.0], ids=["early", "late"])
def test_up_is_killed_on_its_way(machine: None, folder: Path, after: float) -> None:
    """Whatever it has started so far, `down` finds it."""
    before = traces("second")
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), "--name", "second", "--dir", str(folder), "up", "--nodes", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        until(lambda: carriers(ident_of(folder)), "its first process", seconds=30)
        time.sleep(after)
        up.kill()
    assert not (folder / "kubeconfig").exists() or after > 1
    assert second(folder, "down").returncode == 0
    assert carriers(str(folder)) == []
    assert traces("second").beyond(before) == {}
    assert sorted(folder.parent.iterdir()) == []


def test_up_clears_up_when_it_is_told_to_end(machine: None, folder: Path) -> None:
    before = traces("second")
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), "--name", "second", "--dir", str(folder), "up", "--nodes", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        until(lambda: carriers(ident_of(folder)), "its first process", seconds=30)
        time.sleep(1.0)
        up.terminate()
        assert up.wait(60) == 128 + signal.SIGTERM
    assert carriers(str(folder)) == []
    assert traces("second").beyond(before) == {}
    assert sorted(folder.parent.iterdir()) == []


def test_a_leashed_cluster_ends_with_its_maker_and_is_swept_up_later(machine: None, folder: Path) -> None:
    before = traces("second")
    script = (
        "import sys; sys.path.insert(0, '.'); from pathlib import Path; from hack.kubelets.cluster import Cluster;"
        f"Cluster.up(nodes=1, name='second', folder=Path({str(folder)!r}), leashed=True); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "up\n"
        processes = all_of(folder)
        maker.kill()
    until(lambda: survivors(processes) == [], "the end of all processes")
    assert traces("second").beyond(before).keys() == {"cgroups"}
    from_hack("kubelets.remains").sweep()
    assert traces("second").beyond(before) == {}


def test_a_folder_with_somebody_elses_mount_is_not_emptied(machine: None, folder: Path) -> None:
    (folder / "theirs").mkdir(parents=True)
    (folder / ".cluster").touch()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder / "theirs")], check=True, timeout=30)
    try:
        (folder / "theirs" / "file").touch()
        refused = second(folder, "down")
        assert refused.returncode == 1
        assert f"umount {folder}/theirs" in refused.stderr
        assert (folder / "theirs" / "file").exists()
    finally:
        subprocess.run(["umount", str(folder / "theirs")], check=True, timeout=30)


def test_a_folder_that_is_no_clusters_is_not_emptied(machine: None, folder: Path) -> None:
    folder.mkdir()
    (folder / "letter").touch()
    for word in ("up", "down"):
        refused = second(folder, word)
        assert (refused.returncode, "is not a cluster's" in refused.stderr) == (1, True)
    assert (folder / "letter").exists()
    (folder / "letter").unlink()


# --- what the machine must have -----------------------------------------------------------------------------------

LACKS = {
    "system": ("darwin", "namespaces are Linux'"),
    "is_root": (False, "not run as root"),
    "missing_tools": (("nsenter (util-linux)",), r"nsenter \(util-linux\) is not in PATH"),
    "namespaces": ("unshare: Operation not permitted", "Operation not permitted.*privileged"),
    "controllers": (frozenset({"cpu"}), "controllers are not there: .*memory, pids"),
    "cgroups_writable": (False, "/sys/fs/cgroup is read-only"),
    "has_containers": (False, "containerd.*install"),
    "free_space": (10**9, "1 GB are free"),
    "memory": (10**9, "memory are needed, there are 1.0"),
}


@pytest.mark.parametrize("fact", LACKS)
def test_each_lack_is_named_with_what_to_do(fact: str) -> None:
    needs = from_hack("kubelets.needs")
    good = needs.Machine(
        system="linux",
        is_root=True,
        missing_tools=(),
        namespaces="",
        controllers=frozenset({"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}),
        cgroup_version=1,
        cgroups_writable=True,
        has_containers=True,
        free_space=10**11,
        needed_space=10**10,
        memory=10**10,
    )
    assert list(needs.lacks_of(good)) == []
    value, said = LACKS[fact]
    (lack,) = needs.lacks_of(dataclasses.replace(good, **{fact: value}))
    assert re.search(said, lack)
    assert ": " in lack  # what to do comes after


def test_without_privileges_nothing_is_begun() -> None:
    # By one who becomes nobody late: a developer's Python may be where nobody may look, and so are the folders of tests.
    script = (
        "import os, sys; sys.path.insert(0, '.'); from pathlib import Path; from hack.kubelets.cluster import Cluster;"
        "os.setuid(65534); Cluster.up(folder=Path(sys.argv[1], 'state'))"
    )
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o777)
        command = [sys.executable, "-c", script, open_to_all]
        environment = {**os.environ, "CSI_NODE_SIDECAR_CACHE": open_to_all}
        refused = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60, env=environment)
        assert "MachineLacks" in refused.stderr
        assert "not run as root" in refused.stderr
        assert list(Path(open_to_all).iterdir()) == []
