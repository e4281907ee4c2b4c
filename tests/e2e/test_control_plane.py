"""The servers under these tests are killed with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from hack.lib.control_plane import REPOSITORY, until

# Starts an API server, says where, and waits to be killed.
STARTER = """
import signal, sys
from pathlib import Path
from hack.lib.control_plane import ControlPlane
cluster = ControlPlane(Path(sys.argv[1]), Path(sys.argv[2]))
cluster.start()
print(cluster.etcd_url, flush=True)
signal.pause()
"""


def test_nothing_outlives_a_killed_parent(bin_dir: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", STARTER, str(bin_dir), str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        etcd = parent.stdout.readline().strip()
        assert answers(etcd)
        parent.kill()
    until(lambda: not answers(etcd), "etcd is gone")


def answers(url: str) -> bool:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/health", timeout=5).close()
    except OSError:
        return False
    return True
