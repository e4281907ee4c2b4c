"""The demo on a real control plane, as hack/demo --real runs it: the story to the end, then left running to be played with."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from hack.lib.control_plane import REPOSITORY
from hack.lib.patience import LIMIT


def test_the_story_on_a_real_control_plane_which_is_kept_and_can_be_played_with(bin_dir: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "hack" / "demo"), "--real", "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            told, kubeconfig = read_until_kept(running)
            assert "13 volumes in the drivers' own state, 13 PersistentVolumes: 0 leaked, 0 doubled" in told
            assert re.search(r"^crash +1Gi +node-[ab] .* killed -9 in CreateVolume, restarted$", told, re.MULTILINE), told
            kubectl = [str(bin_dir / "kubectl"), f"--kubeconfig={kubeconfig}", "get", "pvc", "-o", "name"]
            claims = subprocess.run(kubectl, capture_output=True, text=True, check=True).stdout.split()
            assert len(claims) == 13
            running.send_signal(signal.SIGINT)
            assert running.wait(LIMIT) == 0
        finally:
            running.kill()
    assert not kubeconfig.parent.exists()


def read_until_kept(running: subprocess.Popen[str]) -> tuple[str, Path]:
    """All it said, and the kubeconfig it offers at the end."""
    assert running.stdout is not None
    told = ""
    for line in running.stdout:
        told += line
        if "export KUBECONFIG=" in line:
            return told, Path(line.strip().partition("=")[2])
    raise AssertionError(f"it ended with {running.wait(LIMIT)} before it was kept:\n{told}")
