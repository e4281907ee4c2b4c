"""This program beside its peer, field by field: a choice of cases; `hack/parity` plays them all."""

from __future__ import annotations

import subprocess
import sys

from hack.lib.control_plane import REPOSITORY
from hack.parities.cases import SMOKE, all_cases


def test_both_programs_do_the_same_with_the_same_claims() -> None:
    assert {*SMOKE} <= {case.id for case in all_cases()}
    command = [sys.executable, str(REPOSITORY / "hack" / "parity"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| compared | {len(SMOKE)} |" in done.stdout
