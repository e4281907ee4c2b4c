"""The alerts, judged by Prometheus' own tool, which is fetched."""

import subprocess
import sys

from hack.lib.control_plane import REPOSITORY


def test_promtool_agrees() -> None:
    """The rules are valid, and fire when and only when tests/deploy/alerts.test.yaml says."""
    command = [sys.executable, str(REPOSITORY / "hack" / "monitoring")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=700)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " rules found" in done.stdout
