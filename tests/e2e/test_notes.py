"""Which machine has a volume, noted on a real API server: by the program with upstream's role and those of the components."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import all_of
from sidecar.drain.machine_mark import Machine, text
from sidecar.model import names
from tests.harness.cluster import NODES, VOLUMES, after_looks
from tests.harness.drains import Ground

Noted = dict[str, tuple[str, str]]


def noted(ground: Ground) -> Noted:
    """By claim."""
    found = {}
    for volume in ground.items(VOLUMES):
        notes = volume["metadata"].get("annotations") or {}
        found[volume["spec"]["claimRef"]["name"]] = notes.get(names.LIES_ON, ""), notes.get(names.LEAVING, "")
    return found


def test_each_sidecar_notes_its_own_volumes_and_a_restart_writes_nothing(ground: Ground) -> None:
    """Two drivers on one node, one of them on another node too."""
    drivers = [ground.driver("n1", name="alpha"), ground.driver("n1", name="beta"), ground.driver("n2", name="alpha")]
    sidecars = [ground.judge(driver) for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        ground.node("n1", *drivers[:2])
        ground.node("n2", drivers[2])
        for sidecar, name, driver in zip(sidecars, ("a", "b", "c"), drivers, strict=True):
            sidecar.until_ready()
            ground.use(name, driver)
        n1, n2 = (text(Machine(name, ground.get(NODES, name)["metadata"]["uid"])) for name in ("n1", "n2"))
        calm: Noted = {"a": (n1, ""), "b": (n1, ""), "c": (n2, "")}
        until(lambda: noted(ground) == calm, "all are noted")
        ground.taint("n1")
        leaving: Noted = {"a": (n1, n1), "b": (n1, n1), "c": (n2, "")}
        until(lambda: noted(ground) == leaving, "n1 leaves")
        ground.taint("n1", on=False)
        until(lambda: noted(ground) == calm, "n1 stays")
        after_looks(*sidecars, at="drain", looks=1)
        before = ground.versions(VOLUMES)
        sidecars[0].kill()
        sidecars[0].start().until_ready()
        after_looks(sidecars[0], at="drain")
        assert ground.versions(VOLUMES) == before
