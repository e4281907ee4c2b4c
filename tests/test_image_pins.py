"""What the image may be made of: pins cover all it needs, pip refuses everything else, and a renewal says what it changes. No network."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from hack.pins import changes, command, index
from hack.pins.closure import TARGETS, Target, needed, unmet
from hack.pins.pin import Pin, backend_pinned, parse, simple, written

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
TEXTS = {place: (ROOT / file).read_text() for place, file in command.FILES.items()}
PINS = {place: parse(text) for place, text in TEXTS.items()}
HASHED = ("image", "build")
ANY = "py3-none-any"


def required_here(names: Sequence[str]) -> dict[str, list[str]]:
    """What the packages that are installed here require, by simple name."""
    return {simple(name): metadata.requires(name) or [] for name in names}


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", HASHED)
def test_all_that_is_needed_stands_in_the_hashed_file_and_nothing_else(place: str) -> None:
    installed = required_here([pin.name for pin in PINS["tests"].values()])
    wanted = needed(command.roots(PYPROJECT)[place], installed)
    assert set(PINS[place]) == set(wanted)
    assert unmet([f"{name}{versions}" for name, versions in wanted.items()], PINS[place]) == []


@pytest.mark.parametrize("place", HASHED)
def test_the_tests_run_with_what_the_image_has(place: str) -> None:
    assert PINS[place]
    for name, pin in PINS[place].items():
        assert pin.version == PINS["tests"][name].version == metadata.version(pin.name)


def test_all_that_the_tests_need_is_pinned() -> None:
    """What comes without a pin comes in whatever version there is that day."""
    here = Target(".".join(platform.python_version_tuple()[:2]), platform.machine())
    wanted = needed(command.roots(PYPROJECT)["tests"], required_here([pin.name for pin in PINS["tests"].values()]), [here])
    assert unmet([f"{name}{versions}" for name, versions in wanted.items()], PINS["tests"]) == []


@pytest.mark.parametrize("place", HASHED)
def test_each_package_is_named_by_version_and_content_and_no_line_names_a_host(place: str) -> None:
    lines = [line for line in TEXTS[place].splitlines() if not line.startswith("#")]
    pin, digest = r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+ \\", r"    --hash=sha256:[0-9a-f]{64}( \\)?"
    assert [line for line in lines if not re.fullmatch(f"{pin}|{digest}", line)] == []
    assert all(found.hashes for found in PINS[place].values())
    about = [line for line in TEXTS[place].splitlines() if line.startswith("#")]
    assert len(about) == 1 and "://" not in about[0]


@pytest.mark.parametrize("place", command.FILES)
def test_the_files_are_as_the_renewal_writes_them(place: str) -> None:
    assert written(PINS[place].values(), about=command.ABOUT[place]) == TEXTS[place]


def test_compiled_packages_have_a_wheel_for_each_python_and_architecture() -> None:
    assert len(PINS["image"]["grpcio"].hashes) >= len(TARGETS) == 6
    assert len(PINS["image"]["protobuf"].hashes) >= 2  # one for all Pythons


def test_the_build_backend_is_the_one_that_is_pinned() -> None:
    (required,) = tomllib.loads(PYPROJECT)["build-system"]["requires"]
    assert required == f"hatchling=={PINS['build']['hatchling'].version}"
    assert backend_pinned(PYPROJECT, PINS["build"]) == PYPROJECT


# --- the Dockerfile ---------------------------------------------------------------------------------------------------


def runs(dockerfile: str) -> list[list[str]]:
    """The commands of the Dockerfile that a shell runs, in words."""
    text = re.sub(r"\\\n", " ", dockerfile)
    found = re.findall(r"^RUN ([^\[].*)$", text, re.MULTILINE)
    return [shlex.split(part) for line in found for part in line.split("&&")]


def installs(place: str) -> list[str]:
    """pip's words with which the Dockerfile installs that file."""
    name = Path(command.FILES[place]).name
    (words,) = [words for words in runs((ROOT / "Dockerfile").read_text()) if name in words]
    assert words[0].endswith("/pip") and words[1] == "install"
    return words[2:]


def test_the_dockerfile_fetches_by_hash_only() -> None:
    commands = runs((ROOT / "Dockerfile").read_text())
    pips = [words for words in commands if words[0].endswith("/pip")]
    fetching = [words for words in pips if words[1] in ("install", "wheel", "download") and "--no-index" not in words]
    assert sorted(word for words in fetching for word in words if word.endswith(".txt")) == [
        "constraints-build.txt",
        "constraints-image.txt",
    ]
    assert len(fetching) == 2 and all({"--require-hashes", "--no-deps", "--only-binary"} <= set(words) for words in fetching)
    assert {words[1] for words in pips} == {"install", "wheel", "check", "uninstall"}
    (wheel,) = [words for words in pips if words[1] == "wheel"]
    assert {"--no-build-isolation", "--no-deps", "--no-index"} <= set(wheel)
    assert {Path(words[0]).name for words in commands} == {"python", "pip"}
    assert "# syntax=" not in (ROOT / "Dockerfile").read_text(), "the image of a syntax would be fetched by its tag"


# --- pip, as the Dockerfile calls it ----------------------------------------------------------------------------------


def make_wheel(
    folder: Path, name: str, version: str, tag: str = ANY, content: str = "", requires: Sequence[str] = (), licence: str = "MIT"
) -> str:
    """Its sha256."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}-{version}-{tag}.whl"
    told = f"{name}-{version}.dist-info"
    head = [f"Name: {name}", f"Version: {version}", f"License: {licence}", *(f"Requires-Dist: {one}" for one in requires)]
    tags = "".join(f"Tag: {tag.rpartition('-')[0]}-{platform}\n" for platform in tag.rpartition("-")[2].split("."))
    files = {
        f"{name}.py": content,
        f"{told}/METADATA": "Metadata-Version: 2.1\n" + "\n".join(head) + "\n",
        f"{told}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n{tags}",
    }
    files[f"{told}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{told}/RECORD"])
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(zipfile.ZipInfo(path), text)
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip knows here."""
    folder = tmp_path / "links"
    folder.mkdir()
    for variable in list(os.environ):
        if variable.startswith("PIP_"):
            monkeypatch.delenv(variable)
    for variable, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": os.devnull, "NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(f"PIP_{variable}", value)
    return folder


def installed(pins: str, place: str = "image") -> tuple[int, str, set[str]]:
    """Code and words of pip, and which modules there are then."""
    folder = Path(os.environ["PIP_FIND_LINKS"]).parent
    (folder / "pins.txt").write_text(pins)
    words = [str(folder / "pins.txt") if word.endswith(".txt") else word for word in installs(place)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *words, "--target", str(folder / "target")]
    done = subprocess.run(pip, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=folder, timeout=60)
    return done.returncode, done.stdout + done.stderr, {file.stem for file in (folder / "target").glob("*.py")}


def test_what_is_known_is_installed_without_what_is_not_listed(links: Path) -> None:
    make_wheel(links, "unlisted", "1")
    digest = make_wheel(links, "tool", "1", requires=["unlisted"])
    code, said, modules = installed(written([Pin("tool", "1", frozenset([digest, "0" * 64]))], about="x"))
    assert (code, modules) == (0, {"tool"}), said


@pytest.mark.parametrize("place", HASHED)
def test_a_wheel_of_another_content_is_refused(links: Path, place: str) -> None:
    digest = make_wheel(links, "tool", "1")
    assert make_wheel(links, "tool", "1", content="import os") != digest
    code, said, modules = installed(written([Pin("tool", "1", frozenset([digest]))], about="x"), place)
    assert code and "DO NOT MATCH THE HASHES" in said and not modules


def test_another_version_is_refused_while_its_hash_is_not_listed(links: Path) -> None:
    old = make_wheel(links, "tool", "1")
    make_wheel(links, "tool", "2")
    before = written([Pin("tool", "1", frozenset([old]))], about="x")
    code, said, modules = installed(before.replace("tool==1", "tool==2"))
    assert code and "DO NOT MATCH THE HASHES" in said and not modules


def test_a_package_without_hash_is_refused(links: Path) -> None:
    make_wheel(links, "tool", "1")
    code, said, modules = installed("tool==1\n")
    assert code and "Hashes are required in --require-hashes mode" in said and not modules


def test_source_is_never_built(links: Path) -> None:
    source = links / "tool-1.tar.gz"
    source.write_bytes(b"whatever is in it")
    code, said, _ = installed(f"tool==1 --hash=sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}\n")
    assert code and "No matching distribution" in said


# --- what is needed, and where ----------------------------------------------------------------------------------------


def test_markers_are_those_of_every_base_and_not_those_of_this_machine() -> None:
    requires = {
        "tool": [
            "old<3; python_version < '3.12'",
            "arm; platform_machine == 'aarch64'",
            "windows; sys_platform == 'win32'",
            "x; extra == 'x'",
        ],
        "old": ["Deep.One>=1", "tool"],
        "x": ["deep-one<2"],
        "deep-one": [],
    }

    def found(root: str, *targets: Target) -> dict[str, str]:
        return {name: str(versions) for name, versions in needed([root], requires, targets or TARGETS).items()}

    assert found("Tool>=1") == {"tool": ">=1", "old": "<3", "arm": "", "deep-one": ">=1"}
    assert found("tool", Target("3.13", "x86_64")) == {"tool": ""}
    assert found("tool[x]; python_version > '3.12'", Target("3.13", "x86_64")) == {"tool": "", "x": "", "deep-one": "<2"}
    assert found("tool[x]")["deep-one"] == "<2,>=1"
    assert found("tool; python_version > '3.13'") == {}


def test_what_no_pin_meets_is_told() -> None:
    pins = {"a": Pin("a", "1.5"), "b": Pin("B", "2")}
    assert unmet(["a>=1,<2", "b==2", "a>=2", "c"], pins) == ["a>=2 (pinned: 1.5)", "c (not pinned)"]


@pytest.mark.parametrize(
    ("wheel", "oldest"),
    [
        ("a-1-cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64.manylinux_2_28_aarch64.whl", 17),
        ("a-1-cp312-cp312-manylinux_2_34_aarch64.whl", 34),
        ("a-1-cp310-abi3-manylinux2014_aarch64.manylinux_2_12_x86_64.whl", 17),
        ("a-1-py3-none-any.whl", 0),
    ],
)
def test_a_wheel_tells_the_glibc_it_needs(wheel: str, oldest: int) -> None:
    assert index.glibc(wheel, "aarch64") == oldest


@pytest.mark.slow
def test_hashes_are_of_all_wheels_that_some_base_would_take(links: Path) -> None:
    targets = [Target("3.11", "x86_64"), Target("3.13", "aarch64")]
    tags = {
        "cp311-cp311-manylinux_2_39_x86_64": True,
        "cp311-cp311-manylinux_2_31_x86_64": True,
        "cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64": True,
        "cp311-cp311-manylinux_2_12_x86_64": False,  # for older ones than any base
        "cp311-cp311-musllinux_1_2_x86_64": False,
        "cp311-cp311-manylinux_2_17_aarch64": False,
        "cp312-cp312-manylinux_2_17_x86_64": False,
        "cp310-abi3-manylinux_2_34_aarch64": True,
        ANY: True,
    }
    digests = {tag: make_wheel(links, "tool", "1", tag, content=tag) for tag in tags}
    make_wheel(links, "tool", "2")
    expected = {digests[tag] for tag, wanted in tags.items() if wanted}
    assert index.hashes([Pin("tool", "1")], targets) == {"tool": expected}


def test_a_base_for_which_there_is_no_wheel_ends_the_renewal(links: Path) -> None:
    make_wheel(links, "tool", "1", "cp311-cp311-manylinux_2_17_x86_64")
    with pytest.raises(index.Failure, match="No matching distribution"):
        index.hashes([Pin("tool", "1")], [Target("3.13", "x86_64")])


# --- the renewal ------------------------------------------------------------------------------------------------------


def test_changes_are_told_once_with_versions_licences_and_places() -> None:
    one, two = frozenset("1"), frozenset("12")
    before = {
        "tests": {"a": Pin("a", "1"), "b": Pin("b", "1"), "c": Pin("c", "1"), "d": Pin("d", "1")},
        "image": {"a": Pin("a", "1", one), "c": Pin("c", "1", one), "d": Pin("d", "1", one)},
    }
    after = {
        "tests": {"a": Pin("a", "2"), "c": Pin("c", "1"), "d": Pin("d", "1"), "e": Pin("e", "3")},
        "image": {"a": Pin("a", "2", two), "c": Pin("c", "1", two), "d": Pin("d", "1", one)},
    }
    told = changes.lines(changes.compared(before, after), {"a": "MIT", "b": "ISC", "c": "MIT"}, {"a": "BSD", "c": "MIT"})
    assert [line.split() for line in told] == [
        ["package", "before", "after", "licence", "where"],
        ["changed", "a", "1", "2", "MIT", "->", "BSD", "tests,", "image"],
        ["removed", "b", "1", "-", "ISC", "tests"],
        ["hashes", "c", "1,", "1", "files", "2", "files", "MIT", "image"],
        ["added", "e", "-", "3", "not", "known", "tests"],
    ]
    assert changes.lines(changes.compared(after, after), {}, {}) == []


def test_a_licence_is_the_packages_own_word() -> None:
    assert index.licence({"License-Expression": "Apache-2.0", "License": "x"}, []) == "Apache-2.0"
    assert index.licence({"License": "3-Clause BSD"}, ["License :: OSI Approved :: MIT License"]) == "3-Clause BSD"
    assert index.licence({"License": "a whole\ntext"}, ["Topic :: x", "License :: OSI Approved :: MIT License"]) == "MIT License"
    assert index.licence({}, []) == "not told"


PROJECT = """[build-system]
requires = ["backend"]
build-backend = "backend"
[project]
name = "project"
dependencies = ["tool>=1"]
[project.optional-dependencies]
dev = ["checker", "backend"]
bench = []
"""


@pytest.fixture
def project(tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "project"
    (root / "hack").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setattr(command, "ROOT", root)
    monkeypatch.setattr(command, "TARGETS", (Target("3.12", "aarch64"),))
    make_wheel(links, "tool", "1", requires=["part"])
    for name in ("part", "checker", "backend"):
        make_wheel(links, name, "1")
    return root


def renewal(*, check: bool = False, keep: bool = False) -> int:
    return command.run(argparse.Namespace(check=check, keep_versions=keep))


def state(project: Path) -> dict[str, str]:
    return {str(file.relative_to(project)): file.read_text() for file in project.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_a_renewal_writes_what_a_check_then_finds_right(project: Path, links: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert renewal() == 0
    files = state(project)
    assert {place: set(parse(files[file])) for place, file in command.FILES.items()} == {
        "tests": {"tool", "part", "checker", "backend"},
        "image": {"tool", "part"},
        "build": {"backend"},
    }
    assert 'requires = ["backend==1"]' in files["pyproject.toml"]
    make_wheel(links, "tool", "2", licence="ISC")
    assert renewal(check=True) == 0, "a newer version is no fault of the pins"
    assert "the files are what the pins need" in capsys.readouterr().out

    file = project / command.FILES["image"]
    file.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, file.read_text(), count=1))
    spoilt = state(project)
    assert renewal(check=True) == 1 and state(project) == spoilt
    assert f"not what the pins need: {command.FILES['image']}" in capsys.readouterr().out

    assert renewal() == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split() for line in told[1:3]] == [
        ["removed", "part", "1", "-", "not", "known", "tests,", "image"],
        ["changed", "tool", "1", "2", "not", "known", "->", "ISC", "tests,", "image"],
    ]


def test_what_only_another_base_needs_is_asked_for_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def resolved(requirements: Sequence[str], *, within: Sequence[Pin]) -> dict[str, index.Told]:
        asked.append(list(requirements))
        told = {"tool": index.Told("tool", "1", ("part<2; platform_machine == 'aarch64'",))}
        return told | ({"part": index.Told("Part", "1.9", ())} if len(asked) > 1 else {})

    monkeypatch.setattr(index, "resolved", resolved)
    monkeypatch.setattr(index, "hashes", lambda pins, targets: {simple(pin.name): frozenset(pin.version) for pin in pins})
    found = command.pins({"tests": ["tool"], "image": ["tool"], "build": []}, within=())
    assert asked == [["tool"], ["tool", "part<2"]]
    assert found["image"]["part"] == Pin("Part", "1.9", frozenset("1.9")) and found["tests"]["part"] == Pin("Part", "1.9")


@pytest.mark.parametrize(("check", "keep", "kept"), [(True, False, True), (False, True, True), (False, False, False)])
def test_versions_are_kept_where_that_is_asked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch, check: bool, keep: bool, kept: bool
) -> None:
    (project / command.FILES["tests"]).write_text("tool==1\nchecker==1\nbackend==1\n")
    seen: list[Sequence[Pin]] = []

    def pins(asked: object, *, within: Sequence[Pin]) -> dict[str, dict[str, Pin]]:
        seen.append(within)
        return {"tests": {}, "image": {}, "build": {"backend": Pin("backend", "1")}}

    monkeypatch.setattr(command, "pins", pins)
    monkeypatch.setattr(index, "licences", lambda pins: {})
    before = state(project)
    assert renewal(check=check, keep=keep) == (1 if check else 0)
    assert [pin.name for pin in seen[0]] == (["tool", "checker", "backend"] if kept else [])
    assert (state(project) == before) == check


def test_a_check_without_an_answer_is_no_difference(project: Path, links: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / command.FILES["tests"]).write_text("tool==1\nchecker==1\nbackend==1\n")
    (links / "tool-1-py3-none-any.whl").unlink()
    before = state(project)
    assert renewal(check=True) == 2 and state(project) == before
    assert "pip install failed:\n  ERROR: Cannot install tool>=1" in capsys.readouterr().err


def test_a_requirement_that_no_pin_meets_is_found_without_asking(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / command.FILES["tests"]).write_text("tool==0.9\nchecker==1\n")
    assert renewal(check=True) == 1
    assert {"tool>=1 (pinned: 0.9)", "backend (not pinned)"} <= {line.strip() for line in capsys.readouterr().out.splitlines()}
