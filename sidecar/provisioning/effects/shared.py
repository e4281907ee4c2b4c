"""What every effect of this room is handed."""

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.model.standing import Standing
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.provisioning.creations.confirming_io import Confirming
from sidecar.provisioning.effects.creation_log import CreationLog
from sidecar.provisioning.effects.reporting import ClaimReports
from sidecar.provisioning.handle_holders_io import HandleHolders
from sidecar.provisioning.lookups import Lookups
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.tools import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One value per process, shared by all effects."""

    tools: Tools
    here: Callable[[], Here]
    caches: Caches
    space: ReservedSpace
    table: ProgressTable
    creations: CreationLog
    confirming: Confirming
    holders: HandleHolders
    reports: ClaimReports
    lookup: Lookups
    standing: Callable[[], Standing]
    snapshot_protected: Callable[[], None]
    """Told when a snapshot has been given our finalizer, so that somebody looks whether it comes off again."""
