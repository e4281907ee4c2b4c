"""The scripts of hack with stand-ins for what they start: what a dry run prints is what is run, and nothing is done by mistake."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import sidecar
from hack.lib.control_plane import REPOSITORY, until
from tests.deploy.manifests import DEPLOY, rendered, the

KIND, RELEASE, RENEW, TEST = (REPOSITORY / "hack" / name for name in ("kind", "release", "renew-constraints", "test"))
SCRIPTS = (KIND, RELEASE, RENEW, TEST, REPOSITORY / "hack" / "demo", REPOSITORY / "hack" / "environment")
CONSTRAINTS = REPOSITORY / "hack" / "constraints.txt"
IMAGE = "registry.example/team/csi-node-sidecar"
DIGEST = "sha256:" + "0123456789abcdef" * 4
BASE_DIGEST = "sha256:" + "fedcba9876543210" * 4
COMMIT = "0123456789" * 4
SECONDS = 60
# A stand-in records its arguments and folder, one run on a line, keeps what it reads, and then runs its own lines.
STAND_IN = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
here = Path(os.environ["STAND_INS"])
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
with (here / "places").open("a") as places:
    places.write(os.getcwd() + "\\n")
if "-" in sys.argv:
    (here / "read").write_text(sys.stdin.read())
"""
BUILD = (
    f"""
BASE_DIGEST = "{BASE_DIGEST}"
"""
    + """
if "build" in sys.argv:
    Path(sys.argv[sys.argv.index("--metadata-file") + 1]).write_text('{\\n  "containerimage.digest": "%s"\\n}')
if "inspect" in sys.argv:
    print(os.environ.get("BASE_IS", BASE_DIGEST) if "{{.Manifest.Digest}}" in sys.argv else "{}")
"""
)
HEAD = f"""
if "rev-parse" in sys.argv:
    print("{COMMIT}")
"""


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A PATH on which only these and the system's own tools are found."""
    for name in ("kind", "kubectl", "docker", "git", "cosign"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(STAND_IN + {"docker": BUILD % DIGEST, "git": HEAD}.get(name, ""))
        file.chmod(0o755)
    return tmp_path


def script(
    file: Path, *words: str, stand_ins: Path | None = None, code: int = 0, caller: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    system = os.pathsep.join(["/usr/bin", "/bin"])
    path = f"{stand_ins / 'bin'}{os.pathsep}{system}" if stand_ins else system
    environment = {"PATH": path, "HOME": "/nonexistent", "STAND_INS": str(stand_ins or ""), **more}
    done = subprocess.run(
        [file, *words], capture_output=True, text=True, check=False, timeout=SECONDS, env=environment, stdin=subprocess.DEVNULL, cwd=caller
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
    first, *_ = script(KIND, "--dry-run", "load").stdout.splitlines()
    assert shlex.split(first) == [str(REPOSITORY / "hack" / "image"), "sidecar", "driver", "busybox"]


def test_what_the_caller_names_is_where_the_caller_is(stand_ins: Path) -> None:
    (stand_ins / "a.tar").touch()
    script(KIND, "load", "a.tar", stand_ins=stand_ins, caller=stand_ins)
    script(KIND, "kubectl", "apply", "-f", "my.yaml", stand_ins=stand_ins, caller=stand_ins)
    assert set((stand_ins / "places").read_text().splitlines()) == {str(stand_ins)}


def test_the_base_is_the_repositorys_wherever_the_caller_is(stand_ins: Path) -> None:
    script(KIND, "install", stand_ins=stand_ins, caller=stand_ins)
    apply, _ = calls(stand_ins)
    assert (stand_ins / apply[-1]).samefile(DEPLOY / "base")


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
    told = dry.stdout.replace("sha256:DIGEST", DIGEST).replace("sha256:BASE", BASE_DIGEST).replace("=COMMIT", f"={COMMIT}")
    assert printed(told, programs={"docker", "env", "cosign"}) == run
    assert ("cosign" in {words[0] for words in run}) == bool(more)


def test_the_build_is_for_two_architectures_with_sbom_and_provenance(stand_ins: Path) -> None:
    script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    (build,) = (words for words in calls(stand_ins) if words[:3] == ["docker", "buildx", "build"])
    assert {"--sbom=true", "--provenance=mode=max", "--push", "linux/amd64,linux/arm64"} <= set(build)
    written = {file.name for file in (stand_ins / "out").iterdir()}
    assert {f"linux-{cpu}.{kind}.json" for cpu in ("amd64", "arm64") for kind in ("spdx", "provenance")} < written


def handed_in(stand_ins: Path) -> dict[str, str]:
    """The build arguments."""
    (build,) = (words for words in calls(stand_ins) if words[:3] == ["docker", "buildx", "build"])
    return dict(value.split("=", 1) for name, value in pairwise(build) if name == "--build-arg")


def test_the_image_is_told_its_version_its_commit_and_where_its_source_is(stand_ins: Path) -> None:
    script(RELEASE, "--source", "https://example.org/repo", "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    (build,) = (words for words in calls(stand_ins) if words[:3] == ["docker", "buildx", "build"])
    assert f"{IMAGE}:v{sidecar.__version__}" in build
    arguments = handed_in(stand_ins)
    assert arguments.pop("BASE")
    assert arguments == {"VERSION": sidecar.__version__, "SOURCE": "https://example.org/repo", "REVISION": COMMIT}


def test_without_a_source_no_address_is_made_up(stand_ins: Path) -> None:
    script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    assert handed_in(stand_ins)["SOURCE"] == ""


def test_the_dockerfile_declares_what_a_release_hands_in(stand_ins: Path) -> None:
    """An engine only warns of an argument that nothing takes."""
    script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    declared = re.findall(r"^ARG (\w+)=", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(handed_in(stand_ins)) <= set(declared)


def dockerfiles_base() -> str:
    (base,) = [
        line.removeprefix("ARG BASE=") for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if line.startswith("ARG BASE=")
    ]
    return base


@pytest.mark.parametrize("words", [(), ("--base", "registry.example:5000/python:3.12")], ids=["the Dockerfile's", "another"])
def test_a_base_with_a_tag_is_built_on_by_the_digest_it_has_today(stand_ins: Path, words: tuple[str, ...]) -> None:
    script(RELEASE, *words, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    named = words[1] if words else dockerfiles_base()
    assert ["docker", "buildx", "imagetools", "inspect", named, "--format", "{{.Manifest.Digest}}"] in calls(stand_ins)
    assert built_on(stand_ins) == f"{named}@{BASE_DIGEST}"


def test_a_base_with_a_digest_is_taken_as_it_is(stand_ins: Path) -> None:
    named = f"registry.example/python:3.12@{DIGEST}"
    script(RELEASE, "--base", named, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins)
    assert built_on(stand_ins) == named
    assert not [words for words in calls(stand_ins) if "{{.Manifest.Digest}}" in words]


def built_on(stand_ins: Path) -> str:
    """The base that the build was handed, which the labels and the file name as well."""
    (build,) = (words for words in calls(stand_ins) if words[:3] == ["docker", "buildx", "build"])
    (base,) = [word.removeprefix("BASE=") for word in build if word.startswith("BASE=")]
    assert not [word for word in build if word.startswith(("BUILD_BASE=", "--file", "-f"))]
    name, _, digest = base.rpartition("@")
    assert {f"org.opencontainers.image.base.name={name}", f"org.opencontainers.image.base.digest={digest}"} <= set(build)
    assert (stand_ins / "out" / "base").read_text() == f"{base}\n"
    return base


@pytest.mark.parametrize("answer", ["", "sha256:12", "{}", DIGEST + "0", DIGEST.upper(), f"{DIGEST}\n{DIGEST}"])
def test_without_a_digest_of_the_base_nothing_is_built(stand_ins: Path, answer: str) -> None:
    out = stand_ins / "out"
    done = script(RELEASE, "--out", str(out), IMAGE, stand_ins=stand_ins, code=1, BASE_IS=answer)
    assert "built on a digest only" in done.stderr
    assert not out.exists() and not [words for words in calls(stand_ins) if "build" in words]


@pytest.mark.parametrize("named", [f"python@{DIGEST[:-1]}", "python@3.12", "python@sha512:" + "0" * 64, f"@{DIGEST}", f"a b@{DIGEST}"])
def test_a_base_that_names_no_digest_behind_its_at_is_refused(stand_ins: Path, named: str) -> None:
    script(RELEASE, "--base", named, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins, code=1)
    assert not [words for words in calls(stand_ins) if "build" in words]


def test_a_registry_that_does_not_know_the_base_ends_the_release(stand_ins: Path) -> None:
    docker = stand_ins / "bin" / "docker"
    docker.write_text(docker.read_text() + 'if "{{.Manifest.Digest}}" in sys.argv: sys.exit("not found")\n')
    done = script(RELEASE, "--out", str(stand_ins / "out"), IMAGE, stand_ins=stand_ins, code=1)
    assert "name the base by its digest" in done.stderr
    assert not [words for words in calls(stand_ins) if "build" in words]


def test_a_release_goes_where_its_caller_says(stand_ins: Path) -> None:
    script(RELEASE, "--out", "out", IMAGE, stand_ins=stand_ins, caller=stand_ins)
    assert (stand_ins / "out" / "drop-in" / "kustomization.yaml").exists()
    assert set((stand_ins / "places").read_text().splitlines()) == {str(REPOSITORY)}, "what is built is the repository"


def test_the_released_component_says_what_is_true_of_it(stand_ins: Path) -> None:
    out = stand_ins / "out"
    script(RELEASE, "--out", str(out), IMAGE, stand_ins=stand_ins)
    text = (out / "drop-in" / "kustomization.yaml").read_text()
    (image,) = yaml.safe_load(text)["images"]
    assert (image["newName"], image["digest"], "newTag" in image) == (IMAGE, DIGEST, False)
    example = yaml.safe_load("\n".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#     ")))
    assert example == {"resources": ["driver.yaml"], "components": ["<this folder>"]}
    assert "csi-node-sidecar, newName" not in text


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


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--fast", IMAGE),
        (f"{IMAGE}:v1",),
        (f"{IMAGE}@{DIGEST}",),
        (IMAGE, IMAGE),
        (IMAGE, "--out"),
        ("--out", "", IMAGE),
        (IMAGE, "--base"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused(stand_ins: Path, words: tuple[str, ...]) -> None:
    script(RELEASE, *words, stand_ins=stand_ins, code=2)
    assert not (stand_ins / "calls").exists()


# --- renew-constraints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--help",), 0), (("-h",), 0), (("--dry-run",), 2), (("all",), 2), (("",), 2), (("--check", "--keep-versions"), 2)],
)
def test_constraints_are_not_renewed_by_mistake(words: tuple[str, ...], code: int) -> None:
    before = CONSTRAINTS.read_bytes()
    done = script(RENEW, *words, code=code, PYTHON="false")
    assert "usage: hack/renew-constraints" in done.stdout if code == 0 else "--help" in done.stderr
    assert CONSTRAINTS.read_bytes() == before


@pytest.mark.parametrize("words", [(), ("--check",), ("--keep-versions",)], ids=str)
def test_a_renewal_is_given_its_words(tested: Path, words: tuple[str, ...]) -> None:
    script(RENEW, *words, stand_ins=tested, PYTHON=sys.executable, CSI_NODE_SIDECAR_CACHE=str(tested), SECOND="0")
    assert (tested / "runs").read_text().splitlines() == [" ".join(["-m hack.pins", *words])]


# --- environment and test ---------------------------------------------------------------------------------------------

# Stands in for Python: asked for a virtual environment, it says whether the lock is held and creates none; else it is Python.
ASKED_TO_INSTALL = f"""#!{sys.executable}
import fcntl, os, sys
if "venv" not in sys.argv:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
with open(os.environ["CSI_NODE_SIDECAR_CACHE"] + "/python.lock") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("held")
sys.exit("free")
"""
# Stands in for Python: each half of the tests, and the build of the control plane, exits with the code in its variable.
PYTHON = """#!/bin/sh
echo "$*" >>"$STAND_INS/runs"
case "$*" in
    *pytest*) if [ -n "${HANGS:-}" ]; then echo $$ >>"$STAND_INS/hanging"; exec sleep 60; fi ;;
esac
case "$*" in
    "-m hack.lib.links" | "-m hack.lib.spelling") ;;
    hack/control-plane*) exit "$PLANE" ;;
    *"not real_api"*) exit "$FIRST" ;;
    *) exit "$SECOND" ;;
esac
"""


def test_the_environment_is_installed_by_one_at_a_time_and_without_flock(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name) or "")
    (tools / "python3").write_text(ASKED_TO_INSTALL)
    (tools / "python3").chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", "source hack/environment && enter_environment"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=REPOSITORY,
        env={"PATH": str(tools), "CSI_NODE_SIDECAR_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "held", done.stderr


@pytest.fixture
def tested(tmp_path: Path) -> Path:
    """Stand-ins in the place of what hack/test installs."""
    key = hashlib.sha256(CONSTRAINTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = tmp_path / f"python-{key}"
    (folder / "bin").mkdir(parents=True)
    (folder / "complete").touch()
    for name in ("python", "nproc", "ruff", "mypy", "lint-imports"):
        (folder / "bin" / name).write_text({"python": PYTHON, "nproc": '#!/bin/sh\necho "$CORES"\n'}.get(name, "#!/bin/sh\n"))
        (folder / "bin" / name).chmod(0o755)
    return tmp_path


def play_tests(tested: Path, *words: str, code: int, **ends: int) -> None:
    ends = {"FIRST": 0, "SECOND": 0, "PLANE": 0, "CORES": 2, **ends}
    settings = {"PYTHON": sys.executable, "CSI_NODE_SIDECAR_CACHE": str(tested), **{name: str(end) for name, end in ends.items()}}
    script(TEST, *words, stand_ins=tested, code=code, **settings)


CHOICE = ("-k", "some")


@pytest.mark.parametrize(
    ("words", "first", "second", "plane", "code"),
    [
        ((), 0, 0, 0, 0),
        (CHOICE, 5, 0, 0, 0),
        (CHOICE, 0, 5, 0, 0),
        (CHOICE, 5, 5, 0, 5),
        (CHOICE, 1, 0, 0, 1),
        (CHOICE, 0, 1, 0, 1),
        (CHOICE, 5, 1, 0, 1),
        (CHOICE, 5, 0, 1, 5),
        (CHOICE, 0, 0, 1, 0),
        ((), 0, 5, 0, 5),
        (("fast", *CHOICE), 5, 0, 0, 5),
        (("real", *CHOICE), 0, 5, 0, 5),
        (("real",), 0, 0, 1, 0),
    ],
)
def test_a_choice_of_tests_may_leave_one_half_empty_but_not_both(
    tested: Path, words: tuple[str, ...], first: int, second: int, plane: int, code: int
) -> None:
    play_tests(tested, *words, code=code, FIRST=first, SECOND=second, PLANE=plane)
    runs = (tested / "runs").read_text()
    if code == 0 and not plane:
        assert ("not real_api" in runs) == ("real" not in words) and "-m real_api" in runs


@pytest.mark.parametrize("cores", [1, 2])
def test_without_a_choice_each_half_has_tests(tested: Path, cores: int) -> None:
    play_tests(tested, code=5, FIRST=5, CORES=cores)


def test_ctrl_c_ends_both_halves(tested: Path) -> None:
    """One runs in the background, where bash keeps the signal from it."""
    settings = {"PYTHON": sys.executable, "CSI_NODE_SIDECAR_CACHE": str(tested), "CORES": "2", "PLANE": "0", "HANGS": "yes"}
    environment = {"PATH": f"{tested / 'bin'}:/usr/bin:/bin", "HOME": "/nonexistent", "STAND_INS": str(tested), **settings}
    with subprocess.Popen([TEST], env=environment, stdin=subprocess.DEVNULL, start_new_session=True) as run:
        hanging = tested / "hanging"
        until(lambda: hanging.exists() and len(hanging.read_text().split()) == 2, "both halves", seconds=SECONDS)
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(SECONDS) != 0
    processes = [Path("/proc") / pid / "cmdline" for pid in hanging.read_text().split()]
    assert not [file for file in processes if file.exists() and b"sleep" in file.read_bytes()]


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [KIND, RELEASE], ids=["kind", "release"])
def test_help_tells_every_option(file: Path) -> None:
    told = script(file, "--help").stdout
    text = file.read_text()
    options = {
        word
        for word in ("--name", "--nodes", "--claims", "--dry-run", "--sign", "--out", "--base")
        if f"        {word})" in text or f" {word})" in text
    }
    assert options and all(option in told for option in options)


@pytest.mark.parametrize("file", SCRIPTS, ids=[file.name for file in SCRIPTS])
def test_shellcheck_finds_nothing(file: Path) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    tool = str(beside) if beside.exists() else shutil.which("shellcheck")
    if tool is None and not os.environ.get("CI"):
        pytest.skip("shellcheck is not installed: pip install -e '.[dev]'")
    assert tool, "shellcheck is missing, and CI must not pass without it"
    done = subprocess.run([tool, "-x", file], capture_output=True, text=True, check=False, timeout=SECONDS, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout
