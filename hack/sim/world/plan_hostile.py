"""Troubles that somebody means: tenants and drivers that try what they may, and clocks that somebody sets. `plan` draws them too."""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hack.sim.driver.faults import Fault
from sidecar.csi.outcome import Code
from sidecar.model.names import SEVERAL_NODES

if TYPE_CHECKING:
    from hack.sim.world.plan import Draft

HUGE: Final = "huge"
WITHOUT_CLASS: Final = "without class"
SELF_SELECTED: Final = "self-selected"
NOWHERE: Final = "nowhere"
ODD_NAME: Final = "odd name"
ODD: Final = (HUGE, WITHOUT_CLASS, SELF_SELECTED, NOWHERE, ODD_NAME)

BOASTS: Final = "boasts"
"""Says in a volume's context which provisioner made it."""
TOO_LONG: Final = "too long"
"""Makes the volume and answers more than gRPC takes, which on our side looks like a full pool."""
ECHOES: Final = "echoes"
"""Refuses, and puts the request's secrets into the text."""
DOUBLES: Final = "doubles"
"""Answers with the volume of another claim, and makes none."""
EVERYWHERE: Final = "everywhere"
"""Makes the volume and says that it can be reached from thousands of places."""
SUCCEEDS_LATE: Final = "succeeds late"
"""Gives up a call, goes on with it all the same, and says meanwhile that it has no room."""
LIES: Final = "lies about room"
"""Says that it has room, and that it has none when it is to make a volume."""
WOBBLES: Final = "wobbles"
"""Makes no large volumes, and most answers to GetCapacity are a little larger than the one before."""
MANNERS: Final = (BOASTS, TOO_LONG, ECHOES, DOUBLES, EVERYWHERE)

OWN_VOLUME: Final = "own volume"
"""The creation of a volume that a PersistentVolume names, under the uid of its claim."""
OTHER_UID: Final = "other uid"
"""The same for a claim that never was."""
DELETION: Final = "deletion"
"""A deletion of such a volume that was begun."""
OTHER_SECRET: Final = "other secret"
"""A creation that never was, with a Secret that no class names."""
FORGED: Final = (OWN_VOLUME, OTHER_UID, DELETION, OTHER_SECRET)

CRASHES: Final = {"CreateVolume": "crashes making", "DeleteVolume": "crashes deleting"}
"""By method: dies of each such call for one volume."""

NAMES_OF_VOLUMES: Final = ("--volume-name-prefix=data", "--volume-name-uuid-length=12", "--volume-name-prefix=pvc")

IMPOSSIBLE: Final = "impossible"
"""So begin the names of claims that no node can ever make, and that stay."""
KEYLESS: Final = "keyless"
"""A class whose Secret does not exist."""
_FLIPPED: Final = ((KEYLESS, 1.0), ("late", 5_000_000.0), ("immediate", 5_000_000.0), ("late", 1.0), ("immediate", 1.0))
"""Class and Gi."""

NO_LABEL: Final = ""

GUARDED: Final = "late-too"
"""A class whose volumes are made with a Secret."""

JUMPS: Final = (86_400.0, -3_600.0, 3.0e8, -60.0)
"""Seconds: a day forward, an hour back, ten years as from a battery that is empty, a minute."""

# All goes well again after this; who draws an event later would disturb a world at rest.
_TROUBLED: Final = 90.0
# What a driver says where it was not given the Secret of a line proves nothing, so it is asked ten times, at last every five minutes.
_TEN_REFUSALS: Final = 3600.0
# What has failed so often is seen to every five minutes, and "there is nothing" is believed the third time.
_MANY_FAILURES: Final = 1800.0


def hostile_tenants(dice: random.Random, draft: "Draft") -> None:
    """Their claims are deleted again: nobody could say which of them must be bound."""
    for number in range(dice.randint(1, 8)):
        name, at = f"odd-{number}", dice.uniform(1.0, 60.0)
        draft.add(at, "odd claim", name, dice.choice((1, 2)), detail=f"{dice.choice(ODD)}/{dice.choice(draft.nodes)}")
        draft.add(at + dice.choice((0.1, 3.0, 25.0)), "odd claim gone", name)


def hostile_drivers(dice: random.Random, draft: "Draft") -> None:
    draft.add(0.0, "class guarded", GUARDED)
    if any(item.whom == GUARDED for item in draft.events):
        draft.settle = _TEN_REFUSALS  # it is replaced by one that names no Secret, so the driver is asked without
    for at in _moments(dice, 4):
        node = dice.choice(draft.nodes)
        draft.add(at, "manner", node, detail=dice.choice(MANNERS))
        draft.add(at + dice.uniform(1.0, 40.0), "manner", node)


def crashing_drivers(dice: random.Random, draft: "Draft") -> None:
    """Long enough to see how often a driver is sent to its death."""
    node, at = dice.choice(draft.nodes), dice.uniform(1.0, 60.0)
    draft.add(at, "manner", node, detail=dice.choice(tuple(CRASHES.values())))
    draft.add(at + dice.choice((40.0, 300.0)), "manner", node)


def late_successes(dice: random.Random, draft: "Draft") -> None:
    """The caller's timeout is 10 seconds; what is at work for twice as long as that after it was given up is not waited for."""
    for at in _moments(dice, 4):
        node = dice.choice(draft.nodes)
        draft.add(at, "manner", node, dice.uniform(0.5, 15.0), detail=SUCCEEDS_LATE)
        draft.add(at + dice.uniform(1.0, 30.0), "manner", node)


def changed_flags(dice: random.Random, draft: "Draft") -> None:
    """Operators, who replace a sidecar in the middle of its work by one that calls volumes otherwise."""
    for at in _moments(dice, 4):
        draft.add(at, "flags changed", dice.choice(draft.nodes), detail=dice.choice(NAMES_OF_VOLUMES))


def lying_drivers(dice: random.Random, draft: "Draft") -> None:
    """Of all nodes or of all but one, for long enough to see where claims go."""
    spared = dice.choice(("", *draft.nodes))
    at, ends = dice.uniform(1.0, 30.0), dice.uniform(60.0, _TROUBLED)
    for number in range(dice.randint(3, 8)):
        draft.add(at + dice.uniform(0.0, 10.0), "claim", f"handed-on-{number}", 1, detail="immediate")
    for node in draft.nodes:
        if node != spared:
            draft.add(at, "manner", node, detail=LIES)
            draft.add(ends, "manner", node)


def wobbling_drivers(dice: random.Random, draft: "Draft") -> None:
    """Of all nodes: else another one takes what they cannot make. Some claims wait until they can."""
    lied = any(item.detail == LIES for item in draft.events)
    at = dice.uniform(1.0, 40.0) + (_TROUBLED if lied else 0.0)
    for number in range(dice.randint(3, 8)):
        draft.add(at + dice.uniform(0.0, 10.0), "claim", f"large-{number}", 2, detail="immediate")
    ends = at + dice.uniform(40.0, 150.0)
    for node in draft.nodes:
        draft.add(at, "manner", node, detail=WOBBLES)
        draft.add(ends, "manner", node)


def selected_node_flips(dice: random.Random, draft: "Draft") -> None:
    """Somebody moves claims to and fro between two nodes. The first one is impossible, and stays."""
    draft.add(0.0, "class keyless")
    for number in range(dice.randint(1, 3)):
        class_, size = dice.choice(_FLIPPED[:3] if number == 0 else _FLIPPED)
        name, at = f"{'moved' if number else IMPOSSIBLE}-{number}", dice.uniform(1.0, 60.0)
        ends = at + dice.choice((20.0, 50.0, 80.0))
        draft.add(at, "flipped claim", name, size, detail=" ".join((class_, dice.choice(("0.3", "1", "4")), *dice.sample(draft.nodes, 2))))
        draft.add(ends, "flips end", name)
        if number:
            draft.add(ends + 5.0, "odd claim gone", name)
    if dice.random() < 0.5:
        draft.settle = max(draft.settle, _MANY_FAILURES)
        # No driver may refuse for good what it has made, as it would be believed; INTERNAL says nothing of that.
        fault = Fault(method="CreateVolume", times=dice.randint(5, 30), fail=Code.INTERNAL)
        draft.faults += [(node, fault) for node in draft.nodes]


def kept_data(dice: random.Random, draft: "Draft") -> None:
    node, at = dice.choice(draft.nodes), dice.uniform(20.0, _TROUBLED)
    draft.add(at, "retained", node, float(dice.randint(0, 9)))
    draft.add(at + dice.uniform(310.0, 900.0), "gets up", node)


def clock_jumps(dice: random.Random, draft: "Draft") -> None:
    for at in _moments(dice, 5):
        draft.add(at, "clock jumps", dice.choice(draft.nodes), dice.choice(JUMPS))


def forged_lines(dice: random.Random, draft: "Draft") -> None:
    """Somebody writes into journals."""
    draft.settle = _TEN_REFUSALS
    for at in _moments(dice, 4):
        draft.add(at, "forged line", dice.choice(draft.nodes), float(dice.randint(0, 9)), detail=dice.choice(FORGED))


def direct_deletions(dice: random.Random, draft: "Draft") -> None:
    """Somebody deletes PersistentVolumes: in use, before their claim, or in the middle of their deletion."""
    for item in [item for item in draft.events if item.what in ("claim", "delete")]:
        if dice.random() < 0.3:
            draft.add(item.at + dice.choice((0.5, 2.0, dice.uniform(2.0, 40.0))), "volume deleted", item.whom)


def relabelled_volumes(dice: random.Random, draft: "Draft") -> None:
    """Somebody changes the label by which nodes hear of their volumes, or takes it off."""
    for item in [item for item in draft.events if item.what == "claim"]:
        at = item.at
        while dice.random() < 0.5:
            at += dice.choice((0.5, 2.0, dice.uniform(2.0, 40.0)))
            draft.add(at, "volume relabelled", item.whom, detail=dice.choice((*draft.nodes, NO_LABEL, SEVERAL_NODES, "no-node")))


def _moments(dice: random.Random, most: int) -> Iterator[float]:
    for _ in range(dice.randint(1, most)):
        yield dice.uniform(1.0, _TROUBLED)
