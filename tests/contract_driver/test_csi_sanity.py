"""Kubernetes' own conformance suite holds our driver to everything it claims."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.contract_driver.served import process, serve_driver
from tests.e2e.controlplane import binaries

LIMIT_SECONDS = 120


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [pytest.param((), id="all"), pytest.param(("--no-topology", "--no-capacity", "--no-multi-writer"), id="little")]
)
def test_csi_sanity(tmp_path: Path, options: tuple[str, ...]) -> None:
    endpoint, report = tmp_path / "csi.sock", tmp_path / "report.json"
    command = [
        str(binaries("csi-sanity") / "csi-sanity"),
        f"--csi.endpoint={endpoint}",
        f"--csi.stagingdir={tmp_path / 'staging'}",
        f"--csi.mountdir={tmp_path / 'mount'}",
        f"--csi.testvolumesize={2**30}",
        f"--ginkgo.json-report={report}",
        "--ginkgo.no-color",
    ]
    driver = serve_driver(endpoint, f"--state={tmp_path / 'state'}", *options)
    with process(driver, endpoint=endpoint, log=tmp_path / "driver.log"):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    states = Counter(spec["State"] for suite in json.loads(report.read_text()) for spec in suite["SpecReports"])
    print(f"csi-sanity: {dict(states)}")
    assert not states.keys() - {"passed", "skipped", "pending"}
    assert states["passed"] >= 30, "most of the suite was skipped: the driver claims too little"
