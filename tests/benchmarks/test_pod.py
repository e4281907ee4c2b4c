"""Programs that are measured as in a pod have the image's environment."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from hack.benchmarks.pod import image_environment, put_into_a_pod
from hack.lib.programs import Process


def test_the_settings_of_the_image_count_and_its_bytecode_is_left_here() -> None:
    environment = image_environment()
    assert environment["PYTHONOPTIMIZE"] == "2"
    assert environment["MALLOC_MMAP_THRESHOLD_"] == "131072"
    assert "PYTHONDONTWRITEBYTECODE" not in environment


def test_what_nobody_hands_to_the_build_is_empty() -> None:
    environment = image_environment()
    assert environment["CSI_NODE_SIDECAR_REVISION"] == "" and not [value for value in environment.values() if "$" in value]


def test_they_stand_before_the_program(tmp_path: Path) -> None:
    cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": base64.b64encode(b"ca").decode()}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": {"token": "t"}}]}))
    process = Process("some", ["program", f"--kubeconfig={kubeconfig}", "--flag"], tmp_path)
    put_into_a_pod(process, kubeconfig)
    settings = [f"{name}={value}" for name, value in image_environment().items()]
    assert process.command[-len(settings) - 2 :] == [*settings, "program", "--flag"]
