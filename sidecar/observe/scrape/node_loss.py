"""What nodes that are gone have left, in numbers."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sidecar.observe.exposition import Family, gauge
from sidecar.observe.labels import OURS

EVIDENCE: Final = ("Announced", "Acknowledged", "None", "Unproven")
"""That the disks do not come back."""


class NodeLoss:
    def __init__(self, lost: Callable[[], Mapping[str, int] | None]) -> None:
        self._lost = lost

    def collect(self) -> Iterator[Family]:
        lost = self._lost()
        if lost is None:
            return
        volumes = gauge(f"{OURS}lost_volumes", "Volumes on nodes that are gone; told by the sidecar that looks after these.", "evidence")
        for evidence in EVIDENCE:
            volumes.add((evidence,), lost.get(evidence, 0))
        yield volumes
