"""The errors of hack/cluster; their texts say what to do."""

from __future__ import annotations

from hack.lib.failure import Failure


class ClusterError(Failure):
    """The cluster cannot be made, or does not do what was asked of it; the message says what to do or where to look."""


class MachineLacks(ClusterError):
    """This machine cannot hold such a cluster."""

    def __init__(self, lacks: list[str]) -> None:
        super().__init__("\n".join(["this machine cannot run a cluster of kubelets:", *(f"  - {lack}" for lack in lacks)]))
        self.lacks = lacks
