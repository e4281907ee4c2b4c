"""What can go wrong here, told so that somebody can act upon it."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot be made, or does not do what was asked of it; the message says what to do or where to look."""


class MachineLacks(ClusterError):
    """This machine cannot hold such a cluster."""

    def __init__(self, lacks: list[str]) -> None:
        super().__init__("\n".join(["this machine cannot run a cluster of kubelets:", *(f"  - {lack}" for lack in lacks)]))
        self.lacks = lacks
