"""What happens in a world whose nodes are emptied and when, drawn from a seed: sets of several replicas, evacuations at once, and undone.

As in `plan`, each kind of trouble has its own dice, and kills, outages, late watches and so on are those of other worlds, stretched.
"""

import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

from hack.sim.drains.plan import GATED, SHARED, stretched
from hack.sim.world.plan import Draft, Plan, planned

BEGIN: Final = 100.0
_SETTLED: Final = 1200.0
"""Within so many seconds after everything is well again whoever may be evicted must have been: a request that failed is tried again within
five minutes, and a node may wait for another one's slot."""

# Management policy, how the volumes of its pods may go, and its budget.
MANAGED: Final = ("OrderedReady", "Parallel")
EPHEMERAL: Final = "ephemeral"
"""They go with their pods."""
GIVEN_UP: Final = "given-up"
"""Their owner says that they may be lost, and deletes the claims of pods that wait for a node that is emptied."""
REPROVISIONED: Final = "reprovisioned"
"""Their owner lets them be made anew elsewhere, one replica at a time."""
KEPT: Final = "kept"
"""Nobody has said anything."""
WORDS: Final = {GIVEN_UP: "Ignore", REPROVISIONED: "Reprovision"}
"""By kind: the policy that the owner gives to the claims."""
BUDGETS: Final = (
    "none",
    "none",
    "maxUnavailable=1",
    "maxUnavailable=1",
    "minAvailable=2",
    "minAvailable=50%",
    "maxUnavailable=2",
    "maxUnavailable=0",
)

EVACUATE: Final = "evacuate"
UNDONE: Final = "evacuation undone"
SET: Final = "replicated set"


def plan_of(
    seed: int,
    *,
    claims: int = 0,
    without: Collection[str] = (),
    kinds: Sequence[str] = (EPHEMERAL, GIVEN_UP, GIVEN_UP, KEPT),
    args: Sequence[str] = (),
) -> Plan:
    """The plan of a seed. `claims` is the number of sets, `kinds` what becomes of their volumes, `args` are further flags of sidecars."""
    dice = random.Random(f"emptying {seed}")
    draft = Draft(tuple(f"n{number}" for number in range(dice.randint(3, 4))), claims or dice.randint(2, 4))
    draft.args += [*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", *args]
    draft.args.append(f"--max-concurrent-evacuations={dice.choice((0, 0, 2, 1))}")
    drawn = [kind for kind in TROUBLES if dice.random() < 0.25]
    troubles = tuple(kind for kind in drawn if kind not in without)
    _sets(random.Random(f"emptying sets {seed}"), draft, kinds)
    _evacuations(random.Random(f"evacuations {seed}"), draft)
    for kind in troubles:
        TROUBLES[kind](random.Random(f"{kind} {seed}"), draft)
    return planned(seed, draft, troubles, settle=_SETTLED)


def sets(draft: Draft) -> list[str]:
    return [item.whom for item in draft.events if item.what == SET]


def _sets(dice: random.Random, draft: Draft, kinds: Sequence[str]) -> None:
    """The number is for how many seconds a pod runs before it is ready."""
    for number in range(draft.claims):
        kind, start = dice.choice(kinds), dice.choice((0.0, 3.0, 25.0))
        detail = f"{dice.choice(MANAGED)} {kind} {dice.choice(BUDGETS)}"
        draft.add(dice.uniform(2.0, 30.0), SET, f"set-{number}", start, detail=detail)


def _evacuations(dice: random.Random, draft: Draft) -> None:
    """Of several nodes at once or shortly one after the other, often of all; some are undone, and some of these begin anew."""
    at = dice.uniform(BEGIN, BEGIN + 50.0)
    for node in dice.sample(draft.nodes, dice.randint(2, len(draft.nodes))):
        begins = at + dice.choice((0.0, 0.0, dice.uniform(0.0, 3.0), dice.uniform(3.0, 120.0)))
        draft.add(begins, EVACUATE, node)
        while dice.random() < 0.4:
            begins += dice.choice((dice.uniform(2.0, 12.0), dice.uniform(12.0, 150.0)))
            draft.add(begins, UNDONE, node)
            begins += dice.choice((1.0, dice.uniform(1.0, 60.0)))
            draft.add(begins, EVACUATE, node)
        if dice.random() < 0.3:
            draft.add(begins + dice.uniform(2.0, 200.0), UNDONE, node)


# --- trouble ---------------------------------------------------------------------------------------------------------------


def _unready(dice: random.Random, draft: Draft) -> None:
    """Replicas are not ready for a while, though they run."""
    for name in sets(draft):
        for _ in range(dice.randint(1, 3)):
            at, ordinal = dice.uniform(BEGIN - 20.0, 400.0), dice.randint(0, 2)
            draft.add(at, "replica not ready", name, ordinal)
            draft.add(at + dice.choice((5.0, 40.0, 200.0)), "replica ready", name, ordinal)


def _deleted_pods(dice: random.Random, draft: Draft) -> None:
    for name in sets(draft):
        for _ in range(dice.randint(1, 3)):
            draft.add(dice.uniform(BEGIN - 20.0, 400.0), "pod deleted", name, dice.randint(0, 2))


def _rolling(dice: random.Random, draft: Draft) -> None:
    for name in sets(draft):
        if dice.random() < 0.7:
            draft.add(dice.uniform(BEGIN - 20.0, 300.0), "new revision", name)


def _scaled(dice: random.Random, draft: Draft) -> None:
    for name in sets(draft):
        at = dice.uniform(BEGIN - 20.0, 300.0)
        draft.add(at, "set scaled", name, dice.choice((0, 1, 2, 4)))
        if dice.random() < 0.7:
            draft.add(at + dice.uniform(2.0, 120.0), "set scaled", name, 3)


def _new_words(dice: random.Random, draft: Draft) -> None:
    """Owners say that what they had given up is needed, and back."""
    for name in sets(draft):
        at = dice.uniform(BEGIN - 20.0, 300.0)
        draft.add(at, "needed", name)
        draft.add(at + dice.uniform(5.0, 200.0), "given up", name)


def _deaths_at_evictions(dice: random.Random, draft: Draft) -> None:
    """A sidecar is killed when its eviction arrives: before it is carried out, or after it and before its answer."""
    for _ in range(dice.randint(1, 5)):
        when = dice.choice(("before", "after"))
        draft.add(dice.uniform(BEGIN, 300.0), "dies at its eviction", dice.choice(draft.nodes), detail=when)


def _deaths_one_after_the_other(dice: random.Random, draft: Draft) -> None:
    """A sidecar dies at one crossing after the other, from the begin of its evacuation on."""
    node = dice.choice(draft.nodes)
    for turn in range(dice.randint(5, 30)):
        draft.add(BEGIN + 12.0 * turn, "doom", node, dice.randint(1, 60))


def _hung_kubelets(dice: random.Random, draft: Draft) -> None:
    """Who was asked to end stays for a while."""
    node, at = dice.choice(draft.nodes), dice.uniform(BEGIN - 10.0, 250.0)
    draft.add(at, "kubelet hangs", node)
    draft.add(at + dice.uniform(10.0, 200.0), "kubelet works", node)


TROUBLES: Final[dict[str, Callable[[random.Random, Draft], None]]] = {
    **{kind: stretched(kind) for kind in SHARED},
    "replicas not ready": _unready,
    "deleted pods": _deleted_pods,
    "new revisions": _rolling,
    "scaled sets": _scaled,
    "changed words": _new_words,
    "deaths at evictions": _deaths_at_evictions,
    "many deaths": _deaths_one_after_the_other,
    "hung kubelets": _hung_kubelets,
}
