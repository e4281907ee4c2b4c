"""The themes of worlds, as `hack/fire --worlds` calls them: who lives in them, what may go wrong, and the plan of a seed.

claims       users make claims and delete them again, while everything goes wrong that can
drains       nodes are drained for good and for reboots, told or not, while owners say and do what they like
emptying     nodes with sets of several replicas are emptied, several at once, and that is undone again
reprovision  the same with replicas that are made anew on other nodes
node-loss    nodes are deleted, announced or not, some come back, and another one clears up after them
maintenance  maintenances of several nodes are declared, several at once, and people have hands (it has a file of its own)
failover     nodes lose power, storage, kubelets and sidecars, each alone (so has this)
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from hack.sim.driver.calls import Fault
from hack.sim.world import failover, maintenance
from hack.sim.world.people import KURED
from hack.sim.world.plan import (
    FIRM,
    GATED,
    IMMEDIATE_CLASS,
    KEPT,
    LATE,
    LATE_TOO,
    LAX,
    SETTLE,
    SHARED,
    Events,
    Plan,
    Theme,
    Trouble,
    death_at,
    lasting,
    of_each,
    of_nodes,
    spans,
    stretched,
)
from sidecar.csi.outcome import Code
from sidecar.model import names

# --- claims -------------------------------------------------------------------------------------------------------------------

HUGE: Final = "huge"
WITHOUT_CLASS: Final = "without class"
SELF_SELECTED: Final = "self-selected"
NOWHERE: Final = "nowhere"
_ODD: Final = (HUGE, WITHOUT_CLASS, SELF_SELECTED, NOWHERE)
_PLACEMENTS: Final = ("random", "ranked")
# Without RESOURCE_EXHAUSTED: pools run full by themselves, and no driver may answer it for a volume that it has made.
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"fail": Code.INTERNAL},
    {"fail": Code.UNAVAILABLE},
    {"hang": 60.0},
    {"delay": 30.0},
    {"delay": 12.0},
    {"delay": 3.0},
    {"linger": 12.0},
    {"lose": Code.DEADLINE_EXCEEDED},
    {"lose": Code.INTERNAL},
)


def _users(dice: random.Random, plan: Plan) -> None:
    """They create claims and often delete them again."""
    for number in range(plan.claims):
        name, at = f"data-{number}", dice.uniform(1.0, 60.0)
        plan.add(at, "claim", name, dice.choice((1, 2, 5)), detail=dice.choice((LATE, LATE_TOO, IMMEDIATE_CLASS, IMMEDIATE_CLASS)))
        if dice.random() < 0.4:
            plan.add(at + dice.expovariate(1 / 20.0), "delete", name)


def _placements(dice: random.Random, plan: Plan) -> None:
    """Each node its own, and some go over to another while claims arrive."""
    for node in plan.nodes:
        plan.placements += ((node, dice.choice(_PLACEMENTS)),)
        if dice.random() < 0.3:
            plan.add(dice.uniform(3.0, 60.0), "placement", node, detail=dice.choice(_PLACEMENTS))


def _driver_faults(dice: random.Random, plan: Plan) -> None:
    for _ in range(dice.randint(1, 6)):
        method = dice.choice(("CreateVolume", "CreateVolume", "DeleteVolume", "GetCapacity"))
        fault = Fault(method=method, times=dice.randint(1, 6), **dice.choice(_FAULTS))
        plan.faults += ((dice.choice(plan.nodes), fault),)


def _full_pools(dice: random.Random, plan: Plan) -> None:
    plan.pool = dice.choice(("3Gi", "5Gi", "10Gi"))


def _hostile_tenants(dice: random.Random, plan: Plan) -> None:
    """Their claims are deleted again: nobody could say which of them must be bound."""
    for number in range(dice.randint(1, 8)):
        name, at = f"odd-{number}", dice.uniform(1.0, 60.0)
        plan.add(at, "odd claim", name, dice.choice((1, 2)), detail=f"{dice.choice(_ODD)}/{dice.choice(plan.nodes)}")
        plan.add(at + dice.choice((0.1, 3.0, 25.0)), "odd claim gone", name)


def _namesakes(dice: random.Random, plan: Plan) -> None:
    """A claim is deleted and created again under the same name, as a StatefulSet would."""
    for item in [item for item in plan.events if item.what == "claim" and dice.random() < 0.3]:
        at = item.at + dice.expovariate(1 / 15.0)
        plan.add(at, "delete", item.whom)
        plan.add(at + dice.choice((0.0, 0.5, 10.0)), "claim", item.whom, item.number, detail=item.detail)


def _direct_deletions(dice: random.Random, plan: Plan) -> None:
    """Somebody deletes PersistentVolumes: in use, before their claim, or in the middle of their deletion."""
    for item in [item for item in plan.events if item.what in ("claim", "delete") and dice.random() < 0.3]:
        plan.add(item.at + dice.choice((0.5, 2.0, dice.uniform(2.0, 40.0))), "volume deleted", item.whom)


_OF_CLAIMS: Final[Mapping[str, Trouble]] = {
    **SHARED,
    "driver restarts": spans("driver away", "driver back", 3, longest=40.0),
    "driver faults": _driver_faults,
    "namesakes": _namesakes,
    "full pools": _full_pools,
    "full disks": spans("disk full", "disk free", 2, longest=40.0),
    "hostile tenants": _hostile_tenants,
    "direct deletions": _direct_deletions,
}

# --- drains -------------------------------------------------------------------------------------------------------------------

_DRAINING: Final = (150.0, 500.0)
"""Drains begin in this span; workloads before it."""
_ALL_TRUE: Final = 1500.0
"""Within so many seconds after everything was given up both verdicts must be True: a creation that never succeeds blocks for ten minutes,
a request that failed is tried again within five, and the driver's list of volumes is two lists a minute apart."""
_WORDS: Final = (
    "",
    "",
    f"{names.DRAIN_POLICY}=AllowIdle",
    f"{names.DRAIN_POLICY}=Block",
    f"{names.DRAIN_POLICY}=Ignore",
    f"{names.DRAIN_POLICY_RETIRE}=AllowIdle",
    f"{names.DRAIN_POLICY_RETIRE}=Ignore",
    f"{names.DRAIN_POLICY_REBOOT}=Block",
)


def _drain_flags(dice: random.Random, plan: Plan) -> None:
    plan.args += (*GATED, f"--node-drain-policy={dice.choice(('NoSchedule', 'Evacuate'))}")


def _owners(dice: random.Random, plan: Plan) -> None:
    for number in range(plan.claims):
        word, class_ = dice.choice(_WORDS), dice.choice((LATE, LATE, LAX, FIRM, KEPT))
        plan.add(dice.uniform(2.0, 60.0), "app", f"app-{number}", dice.uniform(0.0, 5.0), detail=f"{class_} {word}".strip())


def _drainers(dice: random.Random, plan: Plan) -> None:
    """One after the other or at once, for good or for a reboot, told or not."""
    for node in dice.sample(plan.nodes, dice.randint(1, len(plan.nodes) - 1)):
        reboots = dice.random() < 0.4
        said = dice.choice((names.DRAIN_INTENT, KURED, "taint", "")) if reboots else dice.choice(("", "", names.DRAIN_INTENT, "taint"))
        plan.add(dice.uniform(*_DRAINING), "drain for reboot" if reboots else "drain for good", node, detail=said)


def _scaling(dice: random.Random, name: str) -> Events:
    """Stopped and often started again."""
    at = dice.uniform(80.0, 400.0)
    yield at, "scale", name, 0
    if dice.random() < 0.6:
        yield at + dice.choice((3.0, 30.0, dice.uniform(30.0, 300.0))), "scale", name, 1


def _acks(dice: random.Random, name: str) -> Events:
    """A volume is acknowledged while nobody uses it, and some are used again after that."""
    at = dice.uniform(70.0, 300.0)
    yield at, "scale", name, 0
    yield at + 20.0, "ack", name
    if dice.random() < 0.6:
        yield at + 60.0, "scale", name, 1
        yield at + 100.0, "scale", name, 0


def _new_words(dice: random.Random, name: str) -> Events:
    for _ in range(dice.randint(0, 2)):
        yield dice.uniform(80.0, 600.0), "word", name, 0.0, dice.choice(_WORDS)


def _dead_driver(dice: random.Random, node: str) -> Events:
    """It is dead when its sidecar starts."""
    at = dice.uniform(80.0, 300.0)
    yield at, "driver away", node
    yield at + 1.0, "kill", node
    yield at + dice.choice((30.0, 300.0, 900.0)), "driver back", node


_DEATH: Final = lasting("sidecar dies", "sidecar lives", (70.0, 900.0), lambda dice: dice.choice((10.0, 120.0, 600.0, 1500.0)))


_LONGER: Final = {kind: stretched(kind) for kind in SHARED}
_OF_DRAINS: Final[Mapping[str, Trouble]] = {
    **_LONGER,
    "scaling": of_each("app", _scaling, share=0.6),
    "acks": of_each("app", _acks, share=0.7),
    "new words": of_each("app", _new_words),
    "leaving": of_each("app", lambda dice, name: [(dice.uniform(80.0, 600.0), "app deleted", name)], share=0.5),
    "deaths": of_nodes(_DEATH, 1, 3),
    "dead drivers": of_nodes(_dead_driver),
}

# --- nodes that are emptied ---------------------------------------------------------------------------------------------------

ALLOW: Final = "--allow-reprovision"
PAUSE: Final = "--reprovision-pause="
AT_ONCE: Final = f"{PAUSE}0"
SET: Final = "replicated set"
EVACUATE: Final = "evacuate"
UNDONE: Final = "evacuation undone"
ANNOUNCED: Final = "announced"
"""How a node is evacuated: by an annotation and a cordon, not by the taint."""
EPHEMERAL: Final = "ephemeral"
"""Volumes go with their pods."""
GIVEN_UP: Final = "given-up"
"""Their owner says that they may be lost, and deletes the claims of pods that wait for a node that is emptied."""
REPROVISIONED: Final = "reprovisioned"
"""Their owner lets them be made anew elsewhere, one replica at a time."""
POLICIES: Final = {GIVEN_UP: "Ignore", REPROVISIONED: "Reprovision"}
"""By kind of set: what its owner says of the claims."""
_MANAGED: Final = ("OrderedReady", "Parallel")
_BUDGETS: Final = (*("none",) * 2, *("maxUnavailable=1",) * 2, "minAvailable=2", "minAvailable=50%", "maxUnavailable=2", "maxUnavailable=0")
_BEGIN: Final = 100.0
_EMPTIED: Final = 1200.0
"""Within so many seconds after everything is well again whoever may be evicted must have been: a request that failed is tried again within
five minutes, and a node may wait for another one's slot."""


def _sets(dice: random.Random, plan: Plan, kinds: Sequence[str]) -> None:
    """The number is for how many seconds a pod runs before it is ready."""
    for number in range(plan.claims):
        kind, start = dice.choice(kinds), dice.choice((0.0, 3.0, 25.0))
        detail = f"{dice.choice(_MANAGED)} {kind} {dice.choice(_BUDGETS)}"
        plan.add(dice.uniform(2.0, 30.0), SET, f"set-{number}", start, detail=detail)


def _evacuations(dice: random.Random, plan: Plan) -> None:
    """Of several nodes at once or shortly one after the other, often of all; some are undone, and some of these begin anew."""
    at = dice.uniform(_BEGIN, _BEGIN + 50.0)
    for node in dice.sample(plan.nodes, dice.randint(2, len(plan.nodes))):
        begins, how = at + dice.choice((0.0, 0.0, dice.uniform(0.0, 3.0), dice.uniform(3.0, 120.0))), dice.choice(("", ANNOUNCED))
        plan.add(begins, EVACUATE, node, detail=how)
        while dice.random() < 0.4:
            begins += dice.choice((dice.uniform(2.0, 12.0), dice.uniform(12.0, 150.0)))
            plan.add(begins, UNDONE, node)
            begins += dice.choice((1.0, dice.uniform(1.0, 60.0)))
            plan.add(begins, EVACUATE, node, detail=how)
        if dice.random() < 0.3:
            plan.add(begins + dice.uniform(2.0, 200.0), UNDONE, node)


def _unready(dice: random.Random, name: str) -> Events:
    """A replica is not ready for a while, though it runs."""
    for _ in range(dice.randint(1, 3)):
        at, ordinal = dice.uniform(_BEGIN - 20.0, 400.0), dice.randint(0, 2)
        yield at, "replica not ready", name, ordinal
        yield at + dice.choice((5.0, 40.0, 200.0)), "replica ready", name, ordinal


def _deleted_pods(dice: random.Random, name: str) -> Events:
    for _ in range(dice.randint(1, 3)):
        yield dice.uniform(_BEGIN - 20.0, 400.0), "pod deleted", name, dice.randint(0, 2)


def _scaled(dice: random.Random, name: str) -> Events:
    at = dice.uniform(_BEGIN - 20.0, 300.0)
    yield at, "scale", name, dice.choice((0, 1, 2, 4))
    if dice.random() < 0.7:
        yield at + dice.uniform(2.0, 120.0), "scale", name, 3


_OF_EMPTYING: Final[Mapping[str, Trouble]] = {
    **_LONGER,
    "replicas not ready": of_each(SET, _unready),
    "deleted pods": of_each(SET, _deleted_pods),
    "new revisions": of_each(SET, lambda dice, name: [(dice.uniform(_BEGIN - 20.0, 300.0), "new revision", name)], share=0.7),
    "scaled sets": of_each(SET, _scaled),
    "changed words": of_each(SET, lasting("needed", "given up", (_BEGIN - 20.0, 300.0), lambda dice: dice.uniform(5.0, 200.0))),
    "deaths at evictions": of_nodes(death_at((_BEGIN, 300.0), "before", "after"), 1, 5),
    "hung kubelets": of_nodes(lasting("kubelet hangs", "kubelet works", (_BEGIN - 10.0, 250.0), lambda dice: dice.uniform(10.0, 200.0))),
}


def _emptying(name: str, kinds: Sequence[str], *args: str) -> Theme:
    def flags(dice: random.Random, plan: Plan) -> None:
        plan.args += (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", *args)
        plan.args += (f"--max-concurrent-evacuations={dice.choice((0, 0, 2, 1))}",)
        plan.args += (f"{PAUSE}{dice.choice((0, 0, 60))}s",) if ALLOW in args else ()

    people = (lambda dice, plan: _sets(dice, plan, kinds), _evacuations)
    return Theme(name, "emptying", (3, 4), (2, 4), 0.25, flags, people, _OF_EMPTYING, _EMPTIED)


# --- nodes that are lost ------------------------------------------------------------------------------------------------------

LOST_SET: Final = "lost set"
LOST: Final = "node lost"
BACK: Final = "node back"
HOLDER: Final = "holder"
"""Instead of a node's name: the one whose sidecar looks after gone nodes at that moment."""
CLEANUP, ORPHAN = "--node-delete-policy=Cleanup", "--node-delete-policy=Orphan"
_LOSSES: Final = 150.0
_CLEARED: Final = 3000.0
"""Seconds until all that may go is gone: a Lease whose holder is dead is taken after 1,400, looks that failed come again within 600, and a
look takes one step with each thing."""


def _loss_flags(dice: random.Random, plan: Plan) -> None:
    plan.args += ("--drain-report", "--node-drain-policy=NoSchedule", CLEANUP if dice.random() < 0.85 else ORPHAN)
    plan.args += (f"--node-gone-after={dice.choice(('0s', '0s', '1m', '5m'))}",)


def _sets_and_apps(dice: random.Random, plan: Plan) -> None:
    """Sets make their claims again; what is called an app has a claim that nobody makes again, which its owner may give up."""
    for number in range(plan.claims):
        class_ = dice.choice((LATE, LATE, LATE, LATE, KEPT))
        plan.add(dice.uniform(2.0, 30.0), LOST_SET, f"set-{number}", dice.randint(2, 3), detail=class_)
    for number in range(dice.randint(1, 3)):
        name = f"app-{number}"
        plan.add(dice.uniform(2.0, 30.0), "app", name, 1.0, detail=dice.choice((LATE, LATE, KEPT)))
        if dice.random() < 0.6:
            plan.add(dice.uniform(_LOSSES, 1200.0), "app deleted", name)


def _losses(dice: random.Random, plan: Plan) -> None:
    """Two nodes at least are never named; the holder of the Lease may be any. A machine is lost once, and may come back."""
    for node in dice.sample(plan.nodes, dice.randint(1, len(plan.nodes) - 2)):
        at, whom = dice.uniform(_LOSSES, 700.0), HOLDER if dice.random() < 0.3 else node
        if dice.random() < 0.85:
            plan.add(at, EVACUATE, whom)
            if dice.random() < 0.2:
                plan.add(at + dice.uniform(1.0, 200.0), UNDONE, whom)
        at += dice.choice((dice.uniform(1.0, 60.0), dice.uniform(60.0, 300.0), dice.uniform(60.0, 300.0)))
        plan.add(at, LOST, whom, dice.choice((0.0, 0.0, dice.uniform(0.0, 120.0))), detail=dice.choice(("Node", "CSINode")))
        if dice.random() < 0.4:
            plan.add(at + dice.choice((dice.uniform(2.0, 120.0), dice.uniform(120.0, 900.0))), BACK, node)
        if dice.random() < 0.4:
            plan.add(at + dice.uniform(100.0, 1500.0), "loss acknowledged", node)


_ERRORS: Final = lasting("errors", "no errors", (100.0, 600.0), lambda dice: dice.uniform(60.0, 900.0), numbers=(0.05, 0.2, 0.5))
"""The API server answers some requests with 500, 409 or, where lists are asked for, 410."""
_OF_LOSSES: Final[Mapping[str, Trouble]] = {
    **_LONGER,
    "deaths at effects": of_nodes(death_at((_LOSSES, 1500.0), "before", "after", "back"), 1, 6),
    "scaled sets": of_each(LOST_SET, lambda dice, name: [(dice.uniform(_LOSSES, 900.0), "scale", name, dice.randint(0, 3))]),
    "server errors": of_nodes(_ERRORS),
    "deaths": of_nodes(_DEATH, 1, 3),
}

# --- the plan of a seed -------------------------------------------------------------------------------------------------------

_ALL: Final = (
    Theme("claims", "plan", (2, 5), (6, 24), 0.4, lambda dice, plan: None, (_users, _placements), _OF_CLAIMS, SETTLE),
    Theme("drains", "drains", (2, 3), (1, 4), 0.3, _drain_flags, (_owners, _drainers), _OF_DRAINS, _ALL_TRUE),
    _emptying("emptying", (EPHEMERAL, GIVEN_UP, GIVEN_UP, KEPT)),
    _emptying("reprovision", (REPROVISIONED, REPROVISIONED, REPROVISIONED, EPHEMERAL, KEPT), ALLOW),
    Theme("node-loss", "node loss", (3, 4), (3, 5), 0.25, _loss_flags, (_sets_and_apps, _losses), _OF_LOSSES, _CLEARED),
    maintenance.THEME,
    failover.THEME,
)
THEMES: Final = {theme.name: theme for theme in _ALL}


def plan_of(seed: int, theme: str = "claims", *, without: Collection[str] = ()) -> Plan:
    """`without` leaves out kinds of trouble."""
    of = THEMES[theme]
    dice = random.Random(f"{of.salt} {seed}")
    nodes = tuple(f"n{number}" for number in range(dice.randint(*of.nodes)))
    plan = Plan(seed, nodes, theme, claims=dice.randint(*of.claims), settle=of.settle)
    of.flags(dice, plan)
    drawn = [kind for kind in of.troubles if dice.random() < of.share]
    plan.troubles = tuple(kind for kind in drawn if kind not in without)
    for number, people in enumerate(of.people):
        people(random.Random(f"{of.salt} people {number} {seed}"), plan)
    for kind in plan.troubles:
        of.troubles[kind](random.Random(f"{kind} {seed}"), plan)
    plan.events = tuple(sorted(plan.events, key=lambda item: item.at))
    return plan
