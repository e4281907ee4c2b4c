"""Every command goes to the cluster that its line names, whatever the environment says."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar import cli, doors
from sidecar.errors import Fatal
from tests.commands.test_leftovers import SUSPECT, written
from tests.harness import samples

LINES = {
    "run": ("run", "--node-deployment"),
    "run without a verb": ("--node-deployment",),
    "explain pvc": ("explain", "pvc", "ns/data"),
    "explain node": ("explain", "node", "n1"),
    "explain nodes": ("explain", "nodes"),
    "explain volumes": ("explain", "volumes"),
    "node": ("node", "retire", "n1", "--yes"),
    "leftovers": ("leftovers", f"--driver={samples.DRIVER}", f"--delete={SUSPECT.request.name}", "--yes"),
    "label": ("label", "--driver=d"),
    "uninstall": ("uninstall", "--driver=d"),
}
NO_CLUSTER = {"simulate", "version"}
"""Commands that reach none."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """`run` takes them over; the test runner wants them back."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How the API server was to be reached, from a shell in which another cluster is in use. Nothing is sent to it."""
    written(tmp_path, SUSPECT)
    found: list[dict[str, Any]] = []

    async def open_client(**options: Any) -> Any:
        found.append(options)
        raise Fatal("it is enough to know where this would go")

    monkeypatch.setattr(doors, "open_client", open_client)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NODE_NAME", samples.NODE)
    monkeypatch.setenv("KUBECONFIG", "of-the-environment")
    return found


def call(name: str, folder: Path, *words: str) -> int:
    more = (f"--journal-dir={folder}",) if name == "leftovers" else ()
    return cli.main([*LINES[name], *more, *words])


def test_every_command_is_asked() -> None:
    assert {line[0] for line in LINES.values()} - {"--node-deployment"} == set(cli.COMMANDS) - NO_CLUSTER


@pytest.mark.parametrize("name", LINES)
def test_the_flag_wins_over_the_variable(name: str, reached: list[dict[str, Any]], tmp_path: Path) -> None:
    assert call(name, tmp_path, "--kubeconfig=of-the-flag") == 1
    assert [one["kubeconfig"] for one in reached] == ["of-the-flag"]


@pytest.mark.parametrize("words", [(), ("--kubeconfig=",)], ids=["not given", "empty"])
@pytest.mark.parametrize("name", LINES)
def test_without_the_flag_the_variable_counts(name: str, words: tuple[str, ...], reached: list[dict[str, Any]], tmp_path: Path) -> None:
    assert call(name, tmp_path, *words) == 1
    assert [one["kubeconfig"] for one in reached] == ["of-the-environment"]
