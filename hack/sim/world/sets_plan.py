"""The themes of replicated sets: nodes are emptied and that is undone again, replicas are made anew elsewhere, or nodes are lost."""

import random
from collections.abc import Sequence
from typing import Final

from hack.sim.world.plan import GATED, KEPT, LATE, SHARED, Draft, Theme, stretched

ALLOW: Final = "--allow-reprovision"
AT_ONCE: Final = "--reprovision-pause=0"
_BEGIN: Final = 100.0
_EMPTIED: Final = 1200.0
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

LOST_SET: Final = "lost set"
LOST: Final = "node lost"
HOLDER: Final = "holder"
"""Instead of a node's name: the one whose sidecar looks after gone nodes at that moment."""
BACK: Final = "node back"
DIES: Final = "dies at an effect"
ACKNOWLEDGED: Final = "loss acknowledged"
CLEANUP, ORPHAN = "--node-delete-policy=Cleanup", "--node-delete-policy=Orphan"
UNPLACED: Final = "--feature-gates=Topology=false"
"""Volumes get no node affinity."""
_LOSSES: Final = 150.0
_CLEARED: Final = 3000.0
"""Seconds until all that may go is gone: a Lease whose holder is dead is taken after 1,400, looks that failed come again within 600, and a
look takes one step with each thing."""


# --- nodes that are emptied


def _sets(dice: random.Random, draft: Draft, kinds: Sequence[str]) -> None:
    """The number is for how many seconds a pod runs before it is ready."""
    for number in range(draft.claims):
        kind, start = dice.choice(kinds), dice.choice((0.0, 3.0, 25.0))
        detail = f"{dice.choice(MANAGED)} {kind} {dice.choice(BUDGETS)}"
        draft.add(dice.uniform(2.0, 30.0), SET, f"set-{number}", start, detail=detail)


def _evacuations(dice: random.Random, draft: Draft) -> None:
    """Of several nodes at once or shortly one after the other, often of all; some are undone, and some of these begin anew."""
    at = dice.uniform(_BEGIN, _BEGIN + 50.0)
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


def _unready(dice: random.Random, draft: Draft) -> None:
    """Replicas are not ready for a while, though they run."""
    for name in draft.named(SET):
        for _ in range(dice.randint(1, 3)):
            at, ordinal = dice.uniform(_BEGIN - 20.0, 400.0), dice.randint(0, 2)
            draft.add(at, "replica not ready", name, ordinal)
            draft.add(at + dice.choice((5.0, 40.0, 200.0)), "replica ready", name, ordinal)


def _deleted_pods(dice: random.Random, draft: Draft) -> None:
    for name in draft.named(SET):
        for _ in range(dice.randint(1, 3)):
            draft.add(dice.uniform(_BEGIN - 20.0, 400.0), "pod deleted", name, dice.randint(0, 2))


def _rolling(dice: random.Random, draft: Draft) -> None:
    for name in draft.named(SET):
        if dice.random() < 0.7:
            draft.add(dice.uniform(_BEGIN - 20.0, 300.0), "new revision", name)


def _scaled(dice: random.Random, draft: Draft) -> None:
    for name in draft.named(SET):
        at = dice.uniform(_BEGIN - 20.0, 300.0)
        draft.add(at, "set scaled", name, dice.choice((0, 1, 2, 4)))
        if dice.random() < 0.7:
            draft.add(at + dice.uniform(2.0, 120.0), "set scaled", name, 3)


def _new_words(dice: random.Random, draft: Draft) -> None:
    """Owners say that what they had given up is needed, and back."""
    for name in draft.named(SET):
        at = dice.uniform(_BEGIN - 20.0, 300.0)
        draft.add(at, "needed", name)
        draft.add(at + dice.uniform(5.0, 200.0), "given up", name)


def _deaths_at_evictions(dice: random.Random, draft: Draft) -> None:
    """A sidecar is killed when its eviction arrives: before it is carried out, or after it and before its answer."""
    for _ in range(dice.randint(1, 5)):
        when = dice.choice(("before", "after"))
        draft.add(dice.uniform(_BEGIN, 300.0), "dies at its eviction", dice.choice(draft.nodes), detail=when)


def _deaths_one_after_the_other(dice: random.Random, draft: Draft) -> None:
    """A sidecar dies at one crossing after the other, from the begin of its evacuation on."""
    node = dice.choice(draft.nodes)
    for turn in range(dice.randint(5, 30)):
        draft.add(_BEGIN + 12.0 * turn, "doom", node, dice.randint(1, 60))


def _hung_kubelets(dice: random.Random, draft: Draft) -> None:
    """Who was asked to end stays for a while."""
    node, at = dice.choice(draft.nodes), dice.uniform(_BEGIN - 10.0, 250.0)
    draft.add(at, "kubelet hangs", node)
    draft.add(at + dice.uniform(10.0, 200.0), "kubelet works", node)


_EMPTYING_TROUBLES: Final = {
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


def _emptying(name: str, kinds: Sequence[str], *args: str) -> Theme:
    def flags(dice: random.Random, draft: Draft) -> None:
        draft.args += [*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", *args]
        draft.args.append(f"--max-concurrent-evacuations={dice.choice((0, 0, 2, 1))}")

    def people(seed: int, draft: Draft) -> None:
        _sets(random.Random(f"emptying sets {seed}"), draft, kinds)
        _evacuations(random.Random(f"evacuations {seed}"), draft)

    return Theme(name, "emptying", (3, 4), (2, 4), 0.25, flags, people, _EMPTYING_TROUBLES, _EMPTIED)


EMPTYING: Final = _emptying("emptying", (EPHEMERAL, GIVEN_UP, GIVEN_UP, KEPT))
REPROVISION: Final = _emptying("reprovision", (REPROVISIONED, REPROVISIONED, REPROVISIONED, EPHEMERAL, KEPT), ALLOW, AT_ONCE)


# --- nodes that are lost


def _loss_flags(dice: random.Random, draft: Draft) -> None:
    draft.args += ["--drain-report", "--node-drain-policy=NoSchedule", CLEANUP if dice.random() < 0.85 else ORPHAN]
    draft.args.append(f"--node-gone-after={dice.choice(('0s', '0s', '1m', '5m'))}")
    draft.args += [UNPLACED] if dice.random() < 0.2 else []


def _loss_people(seed: int, draft: Draft) -> None:
    _people(random.Random(f"node loss people {seed}"), draft)
    _losses(random.Random(f"losses {seed}"), draft)


def _people(dice: random.Random, draft: Draft) -> None:
    """Sets make their claims again; what is called an app has a claim that nobody makes again, which its owner may give up."""
    for number in range(draft.claims):
        draft.add(
            dice.uniform(2.0, 30.0), LOST_SET, f"set-{number}", dice.randint(2, 3), detail=dice.choice((LATE, LATE, LATE, LATE, KEPT))
        )
    for number in range(dice.randint(1, 3)):
        name = f"app-{number}"
        draft.add(dice.uniform(2.0, 30.0), "app", name, 1.0, detail=dice.choice((LATE, LATE, KEPT)))
        if dice.random() < 0.6:
            draft.add(dice.uniform(_LOSSES, 1200.0), "app deleted", name)


def _losses(dice: random.Random, draft: Draft) -> None:
    """Two nodes at least are never named; the holder of the Lease may be any."""
    for node in dice.sample(draft.nodes, dice.randint(1, len(draft.nodes) - 2)):
        at, whom = dice.uniform(_LOSSES, 700.0), HOLDER if dice.random() < 0.3 else node
        if dice.random() < 0.85:
            draft.add(at, "evacuate", whom)
            if dice.random() < 0.2:
                draft.add(at + dice.uniform(1.0, 200.0), "evacuation undone", whom)
        at += dice.choice((dice.uniform(1.0, 60.0), dice.uniform(60.0, 300.0), dice.uniform(60.0, 300.0)))
        draft.add(at, LOST, whom, dice.choice((0.0, 0.0, dice.uniform(0.0, 120.0))), detail=dice.choice(("Node", "CSINode")))
        while dice.random() < 0.3:
            at += dice.choice((dice.uniform(2.0, 120.0), dice.uniform(120.0, 900.0)))
            draft.add(at, BACK, node)
            at += dice.uniform(30.0, 600.0)
            if dice.random() < 0.5:
                draft.add(at - dice.uniform(1.0, 25.0), "evacuate", node)
            draft.add(at, LOST, node)
        if dice.random() < 0.3:
            draft.add(at + dice.uniform(2.0, 900.0), BACK, node)
        if dice.random() < 0.4:
            draft.add(at + dice.uniform(100.0, 1500.0), ACKNOWLEDGED, node)


def _deaths_at_effects(dice: random.Random, draft: Draft) -> None:
    """Who clears up is killed at its next effect: before that is carried out, or after it and before its answer."""
    for _ in range(dice.randint(1, 6)):
        draft.add(dice.uniform(_LOSSES, 1500.0), DIES, detail=dice.choice(("before", "after")))


def _back_at_effects(dice: random.Random, draft: Draft) -> None:
    """A node registers again right before something that it has left is touched."""
    for _ in range(dice.randint(1, 3)):
        draft.add(dice.uniform(_LOSSES, 1200.0), DIES, detail="back")


def _clocks(dice: random.Random, draft: Draft) -> None:
    """Up to five minutes apart."""
    for node in draft.nodes:
        draft.add(dice.uniform(1.0, 300.0), "clock jumps", node, dice.uniform(-150.0, 150.0))


def _scaled_again(dice: random.Random, draft: Draft) -> None:
    for item in [item for item in draft.events if item.what == LOST_SET]:
        at = dice.uniform(_LOSSES, 900.0)
        draft.add(at, "scale", item.whom, dice.randint(0, 3))


def _errors(dice: random.Random, draft: Draft) -> None:
    """The API server answers some requests with 500, 409 or, where lists are asked for, 410."""
    at = dice.uniform(100.0, 600.0)
    draft.add(at, "errors", number=dice.choice((0.05, 0.2, 0.5)))
    draft.add(at + dice.uniform(60.0, 900.0), "errors", number=0.0)


def _deaths(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 3)):
        node, at = dice.choice(draft.nodes), dice.uniform(100.0, 900.0)
        draft.add(at, "sidecar dies", node)
        draft.add(at + dice.uniform(10.0, 1500.0), "sidecar lives", node)


_LOSS_TROUBLES: Final = {
    **{kind: stretched(kind) for kind in SHARED},
    "deaths at effects": _deaths_at_effects,
    "nodes back at effects": _back_at_effects,
    "clocks apart": _clocks,
    "scaled sets": _scaled_again,
    "server errors": _errors,
    "deaths": _deaths,
}
NODE_LOSS: Final = Theme("node-loss", "node loss", (3, 4), (3, 5), 0.25, _loss_flags, _loss_people, _LOSS_TROUBLES, _CLEARED)
