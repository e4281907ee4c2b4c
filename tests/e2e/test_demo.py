"""The demo tells its story to the end on the embedded API server, stays if it is asked to, and what it started ends with it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from hack.lib.control_plane import REPOSITORY, until


def test_the_whole_story() -> None:
    environ = {**os.environ, "KUBECONFIG": "/nowhere"}
    command = [sys.executable, str(REPOSITORY / "hack" / "demo"), "--keep"]
    told = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, cwd=REPOSITORY) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            told += line
            if "The logs, and what the drivers know" in line:
                break
        children = [path.read_text().split() for path in Path(f"/proc/{demo.pid}/task").glob("*/children")]
        demo.send_signal(signal.SIGTERM)
        told += demo.communicate()[0]
    assert demo.returncode == 0, told
    rows = dict(re.findall(r"^([a-z]+(?:-\d)?) +\d+Gi +(node-[abc]) ", told, re.MULTILINE))
    assert len(rows) == 14, told
    assert rows["fill"] == rows["patient"] == "node-c"
    assert "node-c" not in {node for name, node in rows.items() if name.startswith(("batch", "next", "crash"))}
    assert "crash: CreateVolume was called 2 times, one volume was made" in told
    assert "13 volumes in the drivers' own state, 13 PersistentVolumes: 0 leaked, 0 doubled" in told
    started = [pid for pids in children for pid in pids]
    assert len(started) == 6, "three drivers, three sidecars"
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "all have ended")
