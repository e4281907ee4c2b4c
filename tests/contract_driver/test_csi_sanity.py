"""Kubernetes' own conformance suite holds our driver to everything it claims."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hack.lib.control_plane import binaries
from tests.harness.driver.served import process, serve_driver
from tests.harness.mounting import Namespace, namespace, namespaces_or_skip

LIMIT_SECONDS = 120


@pytest.mark.real_api
@pytest.mark.parametrize("options", [pytest.param((), id="all"), pytest.param(("--no-topology",), id="little")])
def test_csi_sanity(tmp_path: Path, options: tuple[str, ...]) -> None:
    _hold_to_everything(tmp_path, f"--state={tmp_path / 'state'}", *options)


@pytest.mark.real_api
@pytest.mark.parametrize("options", [pytest.param(("--pool=standard=20Gi",), id="budget"), pytest.param((), id="what the disk has")])
def test_csi_sanity_with_real_mounts(tmp_path: Path, options: tuple[str, ...]) -> None:
    namespaces_or_skip()
    volumes = tmp_path / "volumes"
    with namespace() as machine:
        _hold_to_everything(tmp_path, f"--volumes={volumes}", *options, size=2**20, machine=machine)
        mounted = [line for line in Path(f"/proc/{machine.pid}/mountinfo").read_text().splitlines() if str(tmp_path) in line]
    assert (mounted, [path.name for path in volumes.iterdir()]) == ([], [".journal"]), "the suite deletes what it made"


def _hold_to_everything(folder: Path, *options: str, size: int = 2**30, machine: Namespace | None = None) -> None:
    endpoint, report = folder / "csi.sock", folder / "report.json"
    command = [
        str(binaries("csi-sanity") / "csi-sanity"),
        f"--csi.endpoint={endpoint}",
        f"--csi.stagingdir={folder / 'staging'}",
        f"--csi.mountdir={folder / 'mount'}",
        f"--csi.testvolumesize={size}",
        f"--ginkgo.json-report={report}",
        "--ginkgo.no-color",
    ]
    driver = serve_driver(endpoint, *options)
    if machine is not None:
        command, driver = machine.inside(*command), machine.inside(*driver)
    with process(driver, endpoint=endpoint, log=folder / "driver.log"):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    states = Counter(spec["State"] for suite in json.loads(report.read_text()) for spec in suite["SpecReports"])
    print(f"csi-sanity: {dict(states)}")
    assert not states.keys() - {"passed", "skipped", "pending"}
    assert states["passed"] >= 30, "most of the suite was skipped: the driver claims too little"
