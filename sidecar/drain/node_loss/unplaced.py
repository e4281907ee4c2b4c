"""Decides about volumes without node affinity: whether the machine that is gone has made one, so that it lies there and nowhere else.

Some drivers leave out where a volume is, and have any of their instances asked to delete it. The one that made it is the one that has it,
and it is gone, so another one asks. Who made it say two things that must agree: the identity that its maker's process has written when it
was made, which names a node and cannot be changed later, and the note of that node's own sidecar, which names the machine by its uid.
"""

from sidecar.drain.facts.locations import maker_of
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.things import LostVolume


def doubt(lost: LostVolume, machine: Machine) -> str:
    """Why it is not proven that this machine has made it; empty: it is."""
    volume = lost.volume
    maker = maker_of(volume)
    if not maker:
        return "it has no node affinity, and does not say whose sidecar made it"
    if maker != machine.node:
        return f"it has no node affinity, and the sidecar of node {maker} made it: it has been somewhere else since"
    if volume.provisioned_by not in (None, volume.driver):
        return f"it has no node affinity, and {volume.provisioned_by} says that it made it"
    return "" if lost.lies_on == machine else "it has no node affinity, and does not say that it was on this machine"
