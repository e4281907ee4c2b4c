"""hack/kind and hack/release as far as a machine without a container engine can tell: what they print is what they would run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, rendered, the
from tests.e2e.controlplane import REPOSITORY

KIND, RELEASE = (REPOSITORY / "hack" / name for name in ("kind", "release"))
IMAGE = "registry.example/team/csi-node-sidecar"
DIGEST = "sha256:" + "0123456789abcdef" * 4
SECONDS = 60
# A stand-in writes down its words, one run on a line, keeps what it reads, and does what its own lines say.
STAND_IN = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
here = Path(os.environ["STAND_INS"])
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
if "-" in sys.argv:
    (here / "read").write_text(sys.stdin.read())
"""
BUILD = """
if "build" in sys.argv:
    Path(sys.argv[sys.argv.index("--metadata-file") + 1]).write_text('{\\n  "containerimage.digest": "%s"\\n}')
if "inspect" in sys.argv:
    print("{}")
"""


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A PATH on which only these and the system's own tools are found."""
    for name in ("kind", "kubectl", "docker", "git", "cosign"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(STAND_IN + (BUILD % DIGEST if name == "docker" else ""))
        file.chmod(0o755)
    return tmp_path


def script(file: Path, *words: str, stand_ins: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    system = os.pathsep.join(["/usr/bin", "/bin"])
    path = f"{stand_ins / 'bin'}{os.pathsep}{system}" if stand_ins else system
    environment = {"PATH": path, "HOME": "/nonexistent", "STAND_INS": str(stand_ins or "")}
    done = subprocess.run(
        [file, *words], capture_output=True, text=True, check=False, timeout=SECONDS, env=environment, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def calls(stand_ins: Path) -> list[list[str]]:
    return [json.loads(line) for line in (stand_ins / "calls").read_text().splitlines()]


def printed(text: str, *, programs: set[str]) -> list[list[str]]:
    """The commands of a dry run, without what they would read, and without those for which nothing stands in."""
    commands = [shlex.split(line.partition(" > ")[0]) for line in text.splitlines() if not line.startswith("    ")]
    plain = [words[words.index("docker") :] if words[0] == "env" else words for words in commands]
    return [[word for word in words if "SOURCE_DATE_EPOCH" not in word] for words in plain if words[0] in programs]


# --- kind -------------------------------------------------------------------------------------------------------------

VERBS = [
    ("up",),
    ("up", "--nodes", "3"),
    ("install",),
    ("scale", "--claims", "2"),
    ("kubectl", "get", "pods", "-l", "a in (b, c)"),
    ("kubectl", "--help"),
    ("down",),
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_dry_run_prints_what_is_run(stand_ins: Path, verb: tuple[str, ...]) -> None:
    dry = script(KIND, "--name", "two words", "--dry-run", *verb, stand_ins=stand_ins)
    assert not (stand_ins / "calls").exists()
    script(KIND, "--name", "two words", *verb, stand_ins=stand_ins)
    assert printed(dry.stdout, programs={"kind", "kubectl"}) == calls(stand_ins) != []


def test_archives_are_loaded_one_by_one(stand_ins: Path) -> None:
    archives = [str(stand_ins / name) for name in ("a.tar", "b c.tar")]
    for archive in archives:
        Path(archive).touch()
    dry = script(KIND, "--dry-run", "load", *archives, stand_ins=stand_ins)
    script(KIND, "load", *archives, stand_ins=stand_ins)
    assert printed(dry.stdout, programs={"kind"}) == calls(stand_ins)
    assert [words[3] for words in calls(stand_ins)] == archives
    assert "no archive" in script(KIND, "load", "/no/such.tar", stand_ins=stand_ins, code=1).stderr


def test_without_archives_those_of_hack_image_are_loaded() -> None:
    assert script(KIND, "--dry-run", "load").stdout.startswith("hack/image sidecar driver busybox\n")


def test_the_cluster_has_as_many_workers_as_asked_for(stand_ins: Path) -> None:
    script(KIND, "up", "--nodes", "3", stand_ins=stand_ins)
    cluster = yaml.safe_load((stand_ins / "read").read_text())
    assert [node["role"] for node in cluster["nodes"]] == ["control-plane", "worker", "worker", "worker"]


def test_the_scale_test_asks_for_claims_of_a_class_of_the_base(stand_ins: Path) -> None:
    done = script(KIND, "scale", "--claims", "2", stand_ins=stand_ins)
    claims = list(yaml.safe_load_all((stand_ins / "read").read_text()))
    assert [claim["metadata"]["name"] for claim in claims] == ["scale-1", "scale-2"]
    classes = [item["metadata"]["name"] for item in yaml.safe_load_all((DEPLOY / "base" / "storageclasses.yaml").read_text())]
    assert {claim["spec"]["storageClassName"] for claim in claims} <= set(classes)
    assert done.stdout.startswith("2 claims: all bound ")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname"):
        (tools / name).symlink_to(shutil.which(name) or "")
    done = subprocess.run([KIND, "up"], capture_output=True, text=True, check=False, timeout=SECONDS, env={"PATH": str(tools)})
    assert done.returncode == 1
    assert all(name in done.stderr for name in ("kind", "kubectl", "docker", "podman", "nerdctl"))


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("--fast", "up"),
        ("up", "--nodes"),
        ("up", "--nodes", "0"),
        ("scale", "--claims", "x"),
        ("down", "now"),
        ("install", "x"),
    ],
)
def test_what_makes_no_sense_is_refused(stand_ins: Path, words: tuple[str, ...]) -> None:
    script(KIND, *words, stand_ins=stand_ins, code=2)
    assert not (stand_ins / "calls").exists()


# --- release ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--sign",)], ids=["unsigned", "signed"])
def test_a_dry_run_of_a_release_prints_what_is_run(stand_ins: Path, more: tuple[str, ...]) -> None:
    out = str(stand_ins / "out")
    dry = script(RELEASE, "--dry-run", "--out", out, *more, IMAGE, stand_ins=stand_ins)
    assert not (stand_ins / "calls").exists() and not Path(out).exists()
    script(RELEASE, "--out", out, *more, IMAGE, stand_ins=stand_ins)
    run = [words for words in calls(stand_ins) if words[0] != "git" and words[1:] != ["buildx", "version"]]
    assert printed(dry.stdout.replace("sha256:DIGEST", DIGEST), programs={"docker", "env", "cosign"}) == run
    assert ("cosign" in {words[0] for words in run}) == bool(more)


def test_the_build_is_for_two_architectures_with_sbom_and_provenance(stand_ins: Path) -> None:
    script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    (build,) = (words for words in calls(stand_ins) if words[:3] == ["docker", "buildx", "build"])
    assert {"--sbom=true", "--provenance=mode=max", "--push", "linux/amd64,linux/arm64"} <= set(build)
    written = {file.name for file in (stand_ins / "out").iterdir()}
    assert {f"linux-{cpu}.{kind}.json" for cpu in ("amd64", "arm64") for kind in ("spdx", "provenance")} < written


@pytest.mark.real_api
def test_the_released_component_names_the_image_by_its_digest(stand_ins: Path) -> None:
    script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    pod = {"containers": [{"name": "p", "image": "registry.example/sig-storage/csi-provisioner:v6.3.0"}]}
    driver = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": {"spec": pod}}}
    user = stand_ins / "user"
    user.mkdir()
    (user / "driver.yaml").write_text(yaml.safe_dump(driver))
    (user / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["driver.yaml"], "components": ["../out/drop-in"]}))
    after = the("DaemonSet", rendered(user))
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == f"{IMAGE}@{DIGEST}"


def test_a_checkout_with_changes_is_not_released(stand_ins: Path) -> None:
    git = stand_ins / "bin" / "git"
    git.write_text("#!/bin/sh\necho ' M README.md'\n")
    assert "changes" in script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins, code=1).stderr


@pytest.mark.parametrize("words", [(), ("--fast", IMAGE), (f"{IMAGE}:v1",), (f"{IMAGE}@{DIGEST}",), (IMAGE, IMAGE), (IMAGE, "--out")])
def test_a_release_that_makes_no_sense_is_refused(stand_ins: Path, words: tuple[str, ...]) -> None:
    script(RELEASE, *words, stand_ins=stand_ins, code=2)
    assert not (stand_ins / "calls").exists()


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [KIND, RELEASE], ids=["kind", "release"])
def test_help_tells_every_option(file: Path) -> None:
    told = script(file, "--help").stdout
    text = file.read_text()
    options = {
        word
        for word in ("--name", "--nodes", "--claims", "--dry-run", "--sign", "--out")
        if f"        {word})" in text or f" {word})" in text
    }
    assert options and all(option in told for option in options)


@pytest.mark.parametrize("file", [KIND, RELEASE], ids=["kind", "release"])
def test_shellcheck_finds_nothing(file: Path) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    tool = str(beside) if beside.exists() else shutil.which("shellcheck")
    if tool is None and not os.environ.get("CI"):
        pytest.skip("shellcheck is not installed: pip install -e '.[dev]'")
    assert tool, "shellcheck is missing, and CI must not pass without it"
    done = subprocess.run([tool, file], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout
