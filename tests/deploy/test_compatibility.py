"""The page on compatibility names what the tests run with, and what the pages it stands beside say of it."""

import re
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY
from sidecar.csi.version import CSI_VERSION
from tests.deploy.manifests import DEPLOY

PAGE = (DEPLOY / "COMPATIBILITY.md").read_text()
WHAT_RAN = (REPOSITORY / "hack" / "README.md").read_text().partition("\n## What was run where\n")[2].partition("\n## ")[0]
MODULES = {
    "Kubernetes": ("kubernetes", "k8s.io/kubernetes"),
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "kwok": ("kwok", "sigs.k8s.io/kwok"),
    "csi-sanity": ("csi-sanity", "github.com/kubernetes-csi/csi-test/v5"),
    "external-provisioner": ("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6"),
    "mock driver": ("kubernetes", "github.com/container-storage-interface/spec"),
}
"""The folder below hack/go, and the module whose version counts."""


def built(name: str) -> str:
    folder, module = MODULES[name]
    (version,) = re.findall(rf"{re.escape(module)} v([\d.]+)", (REPOSITORY / "hack" / "go" / folder / "go.mod").read_text())
    return str(version)


def row(name: str) -> list[str]:
    """What was run, and what was not."""
    (found,) = re.findall(rf"^\| \*\*{name}\*\* \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    return list(found)


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)+", text))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Kubernetes", ["Kubernetes"]),
        ("etcd, nodes", ["etcd", "kwok", "Kubernetes"]),
        ("CSI", ["csi-sanity", "mock driver"]),
        ("external-provisioner", ["external-provisioner"]),
    ],
)
def test_what_was_run_is_what_is_built(line: str, names: list[str]) -> None:
    assert {built(name) for name in names} <= numbers(row(line)[0])


def test_csi_is_the_version_of_the_messages() -> None:
    assert f"messages of {CSI_VERSION}," in row("CSI")[0]


@pytest.mark.parametrize("line", ["Kubernetes", "etcd, nodes", "external-provisioner", "Python"])
def test_no_version_is_claimed_that_the_list_of_what_was_run_does_not_have(line: str) -> None:
    assert numbers(row(line)[0]) <= numbers(WHAT_RAN)


@pytest.mark.parametrize("what", ["arm64", "cgroup v2", "Grafana", "kind", "buildx"])
def test_what_the_list_says_was_not_run_is_not_claimed(what: str) -> None:
    assert what in WHAT_RAN.partition("\n**Not run yet**")[2]
    for line in re.findall(r"^\| \*\*.*$", PAGE, re.MULTILINE):
        assert what not in line.split(" | ")[1]


def test_the_lowest_kubernetes_is_the_same_on_each_page() -> None:
    (lowest,) = re.findall(r"^- Kubernetes ([\d.]+) and newer", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert f"{lowest} to " in row("Kubernetes")[1]
    assert f"Kubernetes {lowest} or newer" in (DEPLOY / "base" / "README.md").read_text()


def test_pythons_whose_wheels_are_pinned_are_those_of_the_constraints() -> None:
    text = (REPOSITORY / "hack" / "constraints-image.txt").read_text()
    told = re.search(r"Python ([\d.]+) to ([\d.]+)", text.partition("\n")[0])
    assert told and (told[1], told[2]) == (row("Python")[0], max(numbers(row("Python")[1])))


def test_upgrade_notes_are_linked_where_one_installs() -> None:
    assert "](COMPATIBILITY.md)" in (DEPLOY / "README.md").read_text()
    assert "](deploy/COMPATIBILITY.md)" in (REPOSITORY / "README.md").read_text()
    assert all(f"\n## {heading}\n" in PAGE for heading in ("With what", "Version skew", "Upgrade"))


def test_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert named and all((Path(REPOSITORY) / name).is_file() for name in named)
