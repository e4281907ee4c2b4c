"""Tells which of the found containers concern a driver: ours, and whoever else provisions for it."""

from sidecar.commands.check.findings import Findings, NotAsked, Provisioner


def our_sidecars(found: Findings) -> tuple[Provisioner, ...]:
    """Those of the driver; where no description names a driver, those that share one socket."""
    if isinstance(found.provisioners, NotAsked):
        return ()
    return chosen(found.provisioners, found.driver)


def chosen(provisioners: tuple[Provisioner, ...], driver: str) -> tuple[Provisioner, ...]:
    ours = [one for one in provisioners if one.ours]
    named = tuple(one for one in ours if driver and one.serves(driver))
    unnamed = tuple(one for one in ours if not driver or one.serves(driver) is None)
    return named or (unnamed if len({one.socket for one in unnamed}) == 1 else ())


def of_driver(found: Findings) -> tuple[Provisioner, ...]:
    """All that provision for it: by name, by a socket that they share with ours, or in one pod with ours."""
    if isinstance(found.provisioners, NotAsked):
        return ()
    ours = our_sidecars(found)
    sockets = {one.socket for one in ours if one.socket}
    workloads = {one.workload for one in ours}
    return tuple(
        one
        for one in found.provisioners
        if one in ours or (found.driver and one.serves(found.driver)) or (one.socket in sockets or one.workload in workloads)
    )


def meant_driver(provisioners: tuple[Provisioner, ...]) -> str:
    """The one driver that the descriptions of our containers name; empty: none, or several."""
    mentioned = frozenset[str]().union(*(one.mentions for one in provisioners if one.ours))
    return next(iter(mentioned)) if len(mentioned) == 1 else ""
