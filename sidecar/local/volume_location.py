"""Decides which volumes lie on this node: by node affinity if it names labels of this driver, otherwise by which node created them."""

from collections.abc import Mapping

from sidecar.local.here import Here
from sidecar.model import names
from sidecar.model.objects import Json, Volume, affinity_of, identity_of
from sidecar.model.topology import Term


def lies_here(here: Here, volume: Volume) -> bool:
    """The volume is known to lie on this node."""
    return _lies_here(here, volume.affinity, volume.identity)


def lies_elsewhere(here: Here, volume: Volume) -> bool:
    """Something contradicts that the volume lies here. This is not the opposite of `lies_here`: if the affinity asks for labels that this
    driver does not report, neither is true."""
    if volume.affinity is not None and here.with_topology:
        return not any(term.may_match(here.node, here.segment.labels()) for term in volume.affinity)
    return not lies_here(here, volume)


def was_made_here(here: Here, volume: Volume) -> bool:
    """A provisioner of this node has made it, whatever its affinity says: what the driver reports of the node may have changed since."""
    return _was_made_here(here, volume.identity)


def is_of_another_node(here: Here, volume: Volume) -> bool:
    """The volume says that another node has it. Of one that says nothing, this is false on every node: whoever can reach it may use it."""
    labels = here.segment.labels()
    affinity = volume.affinity
    if affinity is not None and not any(term.may_match(here.node, {names.HOSTNAME: here.node, **labels}) for term in affinity):
        return True
    named = any(term.names_values(labels) for term in affinity or ())
    maker = volume.identity.split("-", 2)[-1]
    return not named and maker.startswith(f"{here.driver.name}-") and maker != f"{here.driver.name}-{here.node}"


def found_here(here: Here, obj: Json) -> Volume | None:
    """The record of a PersistentVolume, given in JSON, if it is this driver's and `lies_here`. Of others not even the record is made."""
    if ((obj.get("spec") or {}).get("csi") or {}).get("driver") != here.driver.name:
        return None
    affinity = affinity_of(obj)
    return Volume.with_affinity(obj, affinity) if _lies_here(here, affinity, identity_of(obj)) else None


def unplaced(here: Here, obj: Json) -> Volume | None:
    """The record of a PersistentVolume, given in JSON, if it is this driver's and nothing in it says on which node it is."""
    ours = ((obj.get("spec") or {}).get("csi") or {}).get("driver") == here.driver.name
    said = not ours or affinity_of(obj) is not None or identity_of(obj).split("-", 2)[-1].startswith(f"{here.driver.name}-")
    return None if said else Volume.with_affinity(obj, None)


def node_label(here: Here, affinity: tuple[Term, ...] | None) -> str:
    """What the label `csi-node-sidecar.io/node` says of a volume made here: this node, if no other can have to do with it.

    Of a value that is not the node's name, it is not known that no other node has it too, as with the name of a zone.
    """
    if affinity is None:
        return names.node_value(here.node)  # then it is the maker's alone
    only_here = all(any(item.operator == "In" and item.values == (here.node,) for item in term.requirements) for term in affinity)
    return names.node_value(here.node) if affinity and only_here else names.SEVERAL_NODES


def heard_volumes(here: Here) -> tuple[str, str]:
    """Label selectors for what may concern this node: what `node_label` says of it, and what another program or a person has made.

    Another node's volumes are left out, which in a large cluster are nearly all.
    """
    return f"{names.VOLUME_NODE} in ({names.node_value(here.node)},{names.SEVERAL_NODES})", f"!{names.VOLUME_NODE}"


def may_lie_here(here: Here, obj: Json, hostname: str) -> bool:
    """A PersistentVolume, in JSON, is this driver's, and nothing contradicts that it lies here.

    Volumes that people create by hand may ask for node labels that no driver reports, most often for the hostname; so that one counts too.
    """
    if ((obj.get("spec") or {}).get("csi") or {}).get("driver") != here.driver.name:
        return False
    # What the driver says of the node counts here whether or not it announces topology: the drain room judges by it.
    known = {**({names.HOSTNAME: hostname} if hostname else {}), **here.driver.segment.labels()}
    return any(term.may_match(here.node, known) for term in affinity_of(obj) or ())


def _lies_here(here: Here, affinity: tuple[Term, ...] | None, identity: str) -> bool:
    """Whether this node may have the driver delete the volume. A driver answers OK if it is asked to delete a volume that it does not know;
    then the PersistentVolume would go and the data would stay on its node. So only the node that has the volume may ask.

    Without node affinity, or if it also asks for labels that this driver does not report, the identity tells who created the volume:
    `<time>-<random>-<driver>-<node>`.
    """
    made_here = _was_made_here(here, identity)
    if affinity is None or not here.with_topology:
        return made_here
    labels = here.segment.labels()
    return any(_places_here(here, term, labels, made_here=made_here) for term in affinity)


def _was_made_here(here: Here, identity: str) -> bool:
    return identity.split("-", 2)[-1] == f"{here.driver.name}-{here.node}"


def _places_here(here: Here, term: Term, labels: Mapping[str, str], *, made_here: bool) -> bool:
    """A term that names no values of this driver's labels, or only excludes values, is true of many nodes; then the creator decides."""
    if not term.names_values(labels):
        return made_here and term.holds(labels)
    return term.holds(labels) or (made_here and term.may_match(here.node, {names.HOSTNAME: here.node, **labels}))
