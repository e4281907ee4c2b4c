"""Looks, where nothing is provisioned any more, for what an earlier process left that was to provision here. Nothing of it is touched."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sidecar.kube.api import CAPACITIES, KubeApi, records
from sidecar.kube.errors import ApiError
from sidecar.local.here import Here
from sidecar.local.volume_location import was_made_here
from sidecar.model import names
from sidecar.model.objects import Json, Volume
from sidecar.provisioning.creations import leftovers_io

log = logging.getLogger(__name__)

MESSAGE: Final = "This node has provisioned before, and nothing that is left of it is touched"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    creations: int
    """In the journal: begun, and not known to have ended."""
    capacities: int
    """CSIStorageCapacity objects of this node, whose figures nobody renews."""
    volumes: int
    """PersistentVolumes that were made here and have the finalizer of provisioners."""

    def remedies(self, driver: str, node: str) -> list[str]:
        """What people can do about it; nothing where nothing is left."""
        found = []
        if self.creations:
            found.append(
                f"`csi-node-sidecar leftovers --driver {driver}` here says which creations are unfinished, and a start with "
                "--provisioning=true sees to them"
            )
        if self.capacities:
            label = f"{names.CAPACITY_MANAGER_LABEL}={names.capacity_manager(node)}"
            found.append(f"the scheduler believes old figures until you delete the csistoragecapacities labelled {label}")
        if self.volumes:
            found.append("released volumes go, with their finalizer, only if another provisioner of this driver deletes them")
        return found


async def look(kube: KubeApi, here: Here, volumes: Iterable[Volume], *, namespace: str, journals: "Journals") -> LeftAlone:
    """What cannot be read counts as nothing: this is advice."""
    finalized = sum(names.VOLUME_FINALIZER in volume.finalizers and was_made_here(here, volume) for volume in volumes)
    return LeftAlone(await journals.count(here.driver.name), await _capacities(kube, here, namespace), finalized)


def tell(left: LeftAlone, here: Here) -> None:
    if remedies := left.remedies(here.driver.name, here.node):
        counts = {"creations": left.creations, "capacity_objects": left.capacities, "volumes": left.volumes}
        log.warning(MESSAGE, extra={"fields": {**counts, "remedy": "; ".join(remedies)}})


class Journals(Protocol):
    async def count(self, driver: str) -> int:
        """Creations that earlier processes have begun, and of which no journal says that they ended."""
        ...


class JournalFiles:
    def __init__(self, folder: Path, *, former: Path | None) -> None:
        self._folder = folder
        self._former = former

    async def count(self, driver: str) -> int:
        return await asyncio.to_thread(self._count, driver)

    def _count(self, driver: str) -> int:
        try:
            return len(leftovers_io.read_all(self._folder, driver, former=self._former))
        except OSError:
            return 0


async def _capacities(kube: KubeApi, here: Here, namespace: str) -> int:
    if not namespace:
        return 0
    ours = {names.CAPACITY_DRIVER_LABEL: here.driver.name, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(here.node)}
    selector = ",".join(f"{key}={value}" for key, value in ours.items())
    try:
        return len([one async for one in records(kube, CAPACITIES, _any, cached=True, namespace=namespace, label_selector=selector)])
    except ApiError:
        return 0


def _any(_obj: Json) -> bool:
    return True
