"""The demo tells its story to the end, cleans up however it ends, and does not overlook what went wrong."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.demo.__main__ import conclude
from hack.sim.demo.processes import Program
from hack.sim.demo.report import ClaimHistory, judge, table
from hack.sim.demo.stage import Failed, Place, Stage, until
from hack.sim.demo.watcher import Progress
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.spec import Spec
from hack.sim.driver.state import State, read_state
from sidecar.csi.api import Capability, CreateRequest
from sidecar.kube.api import NODES
from sidecar.model.objects import Json
from tests.harness.cluster_tools import new_cluster

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ["race-1", "race-2", "race-3", "race-4", "race-5", "race-6", "batch-1", "batch-2", "fill", "patient", "next-1", "next-2"]
CLAIMS += ["next-3", "crash"]


@contextmanager
def demo(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HTTP_PROXY": "http://127.0.0.1:9", "KUBECONFIG": "/nowhere"}
    command = [sys.executable, "-m", "hack.sim.demo", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, cwd=ROOT) as running:
        try:
            yield running
        finally:
            running.kill()


def read_until(running: subprocess.Popen[str], words: str) -> str:
    """Its output up to the line with these words."""
    assert running.stdout is not None
    said = ""
    for line in running.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}:\n{said}")


def children(pid: int) -> dict[int, Path]:
    """Living children, and the folder each works in."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    found[int(folder.name)] = (folder / "cwd").readlink()
            except OSError:
                continue
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def comes_true(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# ---- as a program ----


@pytest.mark.slow
def test_the_whole_story_on_the_embedded_api_server() -> None:
    with demo() as running:
        told, _ = running.communicate(timeout=180)
        assert running.returncode == 0, told
    head = re.search(r"^claim +size +node +to owner +to bound +what happened$", told, re.MULTILINE)
    assert head, told
    rows = [line.split() for line in told[head.end() :].strip().splitlines()[: len(CLAIMS)]]
    assert [row[0] for row in rows] == CLAIMS
    owners = {row[0]: row[2] for row in rows}
    assert set(owners.values()) <= {"node-a", "node-b", "node-c"}
    assert owners["fill"] == owners["patient"] == "node-c"
    assert "node-c" not in {owners[name] for name in CLAIMS if name.startswith(("batch", "next", "crash"))}
    assert f"sidecar of {owners['crash']} killed -9 in CreateVolume, restarted" in told
    assert "crash: CreateVolume was called 2 times, one volume was made" in told
    assert "13 volumes in the drivers' own state, 13 PersistentVolumes: 0 leaked, 0 doubled" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_cut_off(number: signal.Signals) -> None:
    with demo() as running:
        read_until(running, "the sidecars are ready")
        started = children(running.pid)
        assert len(started) == 7  # a control plane, three drivers, three sidecars
        running.send_signal(number)
        code = running.wait(20)
    assert comes_true(lambda: not any(map(is_running, started)))
    (work,) = set(started.values())
    if number == signal.SIGKILL:
        assert code == -number
        shutil.rmtree(work)
    else:
        assert (code, work.exists()) == (128 + number, False)


def test_a_demo_that_fails_says_so_and_keeps_what_the_programs_said(tmp_path: Path) -> None:
    with demo(f"--kubeconfig={tmp_path / 'none'}") as running:
        told, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "FAILED: " in told
    match = re.search(r"what the programs said is kept in (\S+)$", told.strip())
    assert match and (Path(match[1]) / "demo.log").exists(), told
    shutil.rmtree(match[1])


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--nonsense", 2)])
def test_the_command_explains_itself_before_it_installs_anything(word: str, code: int) -> None:
    done = subprocess.run(
        [str(ROOT / "hack" / "demo"), word], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == code
    assert "usage: hack/demo [--real] [--keep]" in done.stdout + done.stderr


# ---- what it would not overlook ----


def made(folder: Path, node: str, *names: str) -> list[Json]:
    """Volumes in this node's driver, and the PersistentVolumes that tell of them."""
    driver = LocalDriver(Spec(node_id=node), state=folder / f"{node}.state")
    ids = {name: driver.create(CreateRequest(name, 2**30, (Capability("SINGLE_NODE_WRITER"),))).volume_id for name in names}
    driver.close()
    return [{"spec": {"csi": {"volumeHandle": id_}, "claimRef": {"name": name}}} for name, id_ in ids.items()]


def states(folder: Path) -> list[State]:
    return [read_state(path) for path in sorted(folder.glob("*.state"))]


def test_all_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = made(tmp_path, "node-a", "one", "two") + made(tmp_path, "node-b", "three")
    assert conclude([], judge(states(tmp_path), objects), Progress()) == 0
    assert "3 volumes in the drivers' own state, 3 PersistentVolumes: 0 leaked, 0 doubled" in capsys.readouterr().out


def test_a_planted_leak_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = made(tmp_path, "node-a", "one", "two")
    assert conclude([], judge(states(tmp_path), objects[:1]), Progress()) == 1
    told = capsys.readouterr().out
    assert "2 volumes in the drivers' own state, 1 PersistentVolumes: 1 leaked, 0 doubled\n  leaked: node-a-vol-2 (two)\n" in told
    assert "FAILED" in told


def test_a_planted_double_is_found_on_another_node(tmp_path: Path) -> None:
    objects = made(tmp_path, "node-a", "one")
    made(tmp_path, "node-b", "one")
    verdict = judge(states(tmp_path), objects)
    assert (verdict.doubled, verdict.leaked, verdict.ok) == (("one",), ("node-b-vol-1 (one)",), False)


def test_two_objects_for_one_claim_are_a_double(tmp_path: Path) -> None:
    objects = made(tmp_path, "node-a", "one") + made(tmp_path, "node-b", "two")
    objects[1]["spec"]["claimRef"]["name"] = "one"
    assert judge(states(tmp_path), objects).doubled == ("claim one",)


def test_an_object_without_its_volume_is_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = made(tmp_path, "node-a", "one")
    assert conclude([], judge([], objects), Progress()) == 1
    assert "  lost: node-a-vol-1\n" in capsys.readouterr().out


def test_the_table_has_a_row_for_each_claim_in_order_of_age() -> None:
    histories = [
        ClaimHistory(name="b", size="10Gi", created=2.0, what="never bound", node="node-a", owned=2.25),
        ClaimHistory(name="first", size="1Gi", created=1.0, node="node-b", owned=1.5, bound=13.0, what="bound"),
        ClaimHistory(name="c", size="1Gi", created=3.0),
    ]
    assert table(histories).splitlines() == [
        "claim  size  node    to owner  to bound  what happened",
        "first   1Gi  node-b     0.5 s    12.0 s  bound",
        "b      10Gi  node-a     0.2 s         -  never bound",
        "c       1Gi  -              -         -",
    ]


def test_waiting_ends_when_a_program_ends_that_should_not(tmp_path: Path) -> None:
    program = Program("broken", ["sidecar", "--nonsense"], tmp_path)
    try:
        with pytest.raises(Failed, match=r"(?s)^broken ended with 2 while this was waited for: a wonder\n.*--nonsense"):
            asyncio.run(until(lambda: False, "a wonder", programs=[program.start()]))
    finally:
        program.kill()


def test_waiting_ends_in_time() -> None:
    with pytest.raises(Failed, match=r"^waited 0 s in vain: a wonder$"):
        asyncio.run(until(lambda: False, "a wonder", programs=[], seconds=0.1))


def test_a_cluster_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    cluster: Cluster = new_cluster()
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "somebody"}})
    stage = Stage(Place(work=tmp_path), Progress(), InProcessApi(cluster), {}, [])
    before = cluster.revision
    with pytest.raises(Failed, match="has nodes already"):
        asyncio.run(stage.furnish())
    assert cluster.revision == before
