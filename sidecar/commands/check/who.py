"""Tells which of the found containers concern a driver: ours, and whoever else provisions for it."""

from sidecar.commands.check.findings import Findings, NotAsked, Provisioner


def our_sidecars(found: Findings) -> tuple[Provisioner, ...]:
    return () if isinstance(found.provisioners, NotAsked) else chosen(found.provisioners, found.driver)


def chosen(provisioners: tuple[Provisioner, ...], driver: str) -> tuple[Provisioner, ...]:
    """Those of ours that are the driver's: by its name, or because no other could be."""
    ours = [one for one in provisioners if one.ours]
    named = tuple(one for one in ours if driver and one.serves(driver))
    unnamed = unnamed_of(provisioners, driver)
    return named or (unnamed if len({one.socket for one in unnamed}) == 1 else ())


def unnamed_of(provisioners: tuple[Provisioner, ...], driver: str) -> tuple[Provisioner, ...]:
    """Those of ours that may be the driver's, for all that their descriptions say."""
    return tuple(one for one in provisioners if one.ours and (not driver or one.serves(driver) is None))


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
        if one in ours or (found.driver and one.serves(found.driver)) or one.socket in sockets or one.workload in workloads
    )


def meant_driver(provisioners: tuple[Provisioner, ...]) -> str:
    """The one driver that the descriptions of all our containers name; empty: it is not known."""
    mentioned = drivers_of(provisioners)
    return mentioned[0] if len(mentioned) == 1 and all(one.mentions for one in provisioners if one.ours) else ""


def drivers_of(provisioners: tuple[Provisioner, ...]) -> list[str]:
    return sorted(frozenset[str]().union(*(one.mentions for one in provisioners if one.ours)))
