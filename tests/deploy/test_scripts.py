"""The shell scripts of hack: what a dry run of a release says, and that shellcheck finds nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

import sidecar
from hack.lib.control_plane import REPOSITORY
from hack.lib.programs import Json

IMAGE, BASE = "registry.example/team/csi-node-sidecar", f"python@sha256:{'0123456789abcdef' * 4}"
SCRIPTS = [REPOSITORY / "hack" / name for name in ("environment", "kind/scale", "release", "renew-constraints", "test")]


def release(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([REPOSITORY / "hack/release", "--dry-run", *words], capture_output=True, text=True, check=False, timeout=60)


def test_a_release_is_for_two_architectures_with_sbom_provenance_and_its_version() -> None:
    build = next(line for line in release("--base", BASE, IMAGE).stdout.splitlines() if "buildx" in line)
    for word in ("linux/amd64", "linux/arm64", "--sbom=true", "--provenance=mode=max", f"BASE={BASE}", f"{IMAGE}:v{sidecar.__version__}"):
        assert word in build.replace("\\", ""), word


def test_a_release_is_built_on_a_digest_only() -> None:
    for base in ("", "python:3.13-slim", BASE[:-1]):
        done = release("--base", base, IMAGE)
        assert done.returncode == 1 and "digest" in done.stderr and "docker" not in done.stdout


def test_the_dockerfile_takes_what_a_release_hands_in() -> None:
    build = next(line for line in release("--base", BASE, IMAGE).stdout.splitlines() if "buildx" in line)
    taken = re.findall(r"^ARG (\w+)", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(re.findall(r"--build-arg (\w+)=", build.replace("\\", ""))) <= {*taken}


def test_the_released_component_names_the_image_by_its_digest() -> None:
    told = release("--base", BASE, IMAGE).stdout
    component: Json = yaml.safe_load(told[told.index("# ") :])
    assert component["images"] == [{"name": component["images"][0]["name"], "newName": IMAGE, "digest": "sha256:DIGEST"}]


def test_shellcheck_finds_nothing() -> None:
    tool = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([tool, "-x", *SCRIPTS], capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout
