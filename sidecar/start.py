"""Chooses what the flags ask for, `wiring` or `report_only`, loads it and makes it; and looks after what was said of the node before the
driver answers.
"""

from typing import TYPE_CHECKING, Final

from sidecar import settings
from sidecar.config.config import Config
from sidecar.doors import Opened, former_journal_folder, journal_folder

if TYPE_CHECKING:
    from sidecar.report_only import ReportOnly
    from sidecar.wiring import Sidecar

# In which what was said before may still be taken back, when the process ends without having met its driver.
_LAST_WORDS_SECONDS: Final = 5.0


def assemble(opened: Opened) -> "Sidecar | ReportOnly":
    """Everything together, once the driver has said who it is."""
    if not opened.config.provisioning:
        from sidecar.provisioning.left_alone_io import JournalFiles
        from sidecar.report_only import ReportOnly

        journals = JournalFiles(journal_folder(opened.config), former=former_journal_folder(opened.config))
        return ReportOnly(opened.config, opened.doors(), opened.tools, recorder=opened.recorder(), journals=journals)
    from sidecar.wiring import Sidecar

    return Sidecar(opened.config, opened.doors(), opened.tools, recorder=opened.recorder(), asks_rights=not opened.config.dry_run)


def load_rooms(config: Config) -> None:
    """Imports what these flags need and others do not, before there is an event loop: it would stand still for as long."""
    if config.kubeconfig:
        from sidecar.kube import kubeconfig  # noqa: F401
    if settings.drains(config):
        from sidecar.drain import watches  # noqa: F401
    if settings.fails_over(config):
        from sidecar.failover import controller  # noqa: F401
    if config.provisioning:
        from sidecar import wiring  # noqa: F401
    else:
        from sidecar import report_only  # noqa: F401
        from sidecar.provisioning import left_alone_io  # noqa: F401
