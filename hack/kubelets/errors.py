"""The errors of hack/cluster, whose texts say what to do, and how long it waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hack.lib import control_plane
from hack.lib.command import Failure

T = TypeVar("T")


class ClusterError(Failure):
    """The cluster cannot be made, or does not do what was asked of it; the message says what to do or where to look."""


class MachineLacks(ClusterError):
    """This machine cannot hold such a cluster."""

    def __init__(self, lacks: list[str]) -> None:
        super().__init__("\n".join(["this machine cannot run a cluster of kubelets:", *(f"  - {lack}" for lack in lacks)]))


def until(condition: Callable[[], T], what: str, *, log: Path | None = None) -> T:
    """The first true answer of the condition. Without one the error says what was waited for and shows the end of the log."""
    try:
        return control_plane.until(condition, what)
    except TimeoutError as error:
        raise ClusterError(f"{error}{tail(log)}") from None


def tail(log: Path | None) -> str:
    if log is None or not log.exists():
        return ""
    return "\n  ".join([f"; the last lines of {log}:", *log.read_text(errors="replace").splitlines()[-10:]])
