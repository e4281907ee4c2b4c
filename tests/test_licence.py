"""The licence is whole, everybody is told of it where they look, and what comes from other projects is named."""

import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from hashlib import sha256
from pathlib import Path

import pytest

from sidecar.csi.version import CSI_VERSION

ROOT = Path(__file__).resolve().parents[1]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""Of the text as apache.org publishes it, and as Go modules and wheels ship it."""
PROTOS = sorted((ROOT / "csi_proto").glob("*.proto"))


def test_the_licence_is_the_text_as_it_was_published() -> None:
    assert sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as opened:
        return {name.partition(".dist-info/")[2]: opened.read(name) for name in opened.namelist() if ".dist-info/" in name}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    return message_from_bytes(wheel["METADATA"])


def test_the_wheel_says_its_licence_as_spdx_does_and_carries_both_files(wheel: dict[str, bytes], metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    for name in ("LICENSE", "NOTICE"):
        assert wheel[f"licenses/{name}"] == (ROOT / name).read_bytes()


def test_no_classifier_says_the_licence_a_second_time(metadata: Message) -> None:
    """An index refuses a wheel that has both."""
    classifiers = metadata.get_all("Classifier", [])
    assert classifiers and not [name for name in classifiers if name.startswith("License ::")]


def test_no_address_of_the_project_is_made_up(metadata: Message) -> None:
    """It has none that everybody could open; whoever publishes it adds `urls`."""
    assert metadata.get_all("Project-URL") is None and metadata["Home-page"] is None


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.name)
def test_definitions_of_others_say_where_they_come_from_and_under_which_licence(proto: Path) -> None:
    head = proto.read_text().partition("\nsyntax")[0]
    (origin,) = re.findall(r"https://github\.com/[\w/-]+", head)
    assert "Apache License, Version 2.0" in head and re.search("left out|changed", head)
    for page in (ROOT / "NOTICE", ROOT / "csi_proto" / "README.md"):
        (line,) = [line for line in page.read_text().splitlines() if re.match(rf"(- |\| `){re.escape(proto.name)}", line)]
        assert origin in line


def test_the_version_of_csi_is_the_same_wherever_it_stands() -> None:
    told = re.match(r"// Container Storage Interface v(\d+\.\d+\.\d+):", (ROOT / "csi_proto/csi.proto").read_text())
    assert told and told[1] == CSI_VERSION
    assert f"Container Storage Interface {told[1]}," in (ROOT / "NOTICE").read_text()
    assert f"version {told[1]} |" in (ROOT / "csi_proto/README.md").read_text()
    assert f"v{told[1].rpartition('.')[0]} (csi.proto)" in (ROOT / "csi_proto/__init__.py").read_text()


def test_the_source_is_given_away_with_its_licence() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {"/LICENSE", "/NOTICE"} <= set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    assert "](LICENSE)" in (ROOT / "README.md").read_text().partition("\n## Licence\n")[2]
