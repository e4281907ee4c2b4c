"""A node with all kinds of things on it, drawn by dice."""

from dataclasses import fields, replace
from random import Random
from typing import Any

from sidecar.drain.snapshot import InFlight, Own, Snapshot, Unplaced
from sidecar.drain.words import Policy
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Notes, Volume
from tests.harness.drain.samples import DRIVER, NAMESPACE, claim, class_, content, node, notes, owner, pod, snapshot, stamp, volume

_WORDS = (None, None, None, None, "Reprovision", *Policy, "Foo")


def drawn(dice: Random) -> Snapshot:
    """A node with all kinds of things on it."""
    numbers = range(dice.randint(0, 5))
    lately = frozenset(f"{NAMESPACE}/data-{number}" for number in numbers if dice.random() < 0.1)
    own = Own(
        lately_used=lately,
        untracked=("lv-1", "lv-2")[: dice.randint(0, 2)],
        default_policy=dice.choice([None, None, *Policy]),
        reprovisions=dice.random() < 0.5,
    )
    return snapshot(
        own=own,
        node=dice.choice([None, *(node(ready=ready) for ready in ("True",) * 8 + ("False", "Unknown"))]),
        volumes=tuple(_volume(number, dice) for number in numbers),
        claims=[_claim(number, dice) for number in numbers if dice.random() < 0.9],
        classes=(class_(policy=dice.choice(_WORDS)), class_("slow")),
        pods=tuple(_pod(number, dice) for number in range(dice.randint(0, 5))),
        contents=tuple(content(f"snap-{number}", ack=dice.choice([None, "ann"])) for number in range(dice.choice([0, 0, 0, 2]))),
        in_flight=tuple(InFlight(claim(f"new-{number}")) for number in range(dice.choice([0] * 5 + [2]))),
        namespaces=dice.choice([{}, {}, {}, {NAMESPACE: notes("Ignore")}, {NAMESPACE: notes("Bar")}]),
        claimants=tuple(
            replace(_pod(number, dice), node=dice.choice(["", "n2"]), phase="Pending") for number in range(5, 5 + dice.choice([0, 0, 1, 2]))
        ),
        attached=frozenset(f"pv-{number}" for number in numbers if dice.random() < 0.1),
        unplaced=tuple(Unplaced("pv-9", "nobody knows", notes(ack=dice.choice([None, "ann"]))) for _ in range(dice.choice([0] * 9 + [1]))),
        unread=dice.choice([frozenset(), frozenset(), frozenset({f"namespace {NAMESPACE}"})]),
        ignorance=("the claims could not be listed", "the pods could not be listed")[: dice.choice([0] * 6 + [2])],
    )


def _volume(number: int, dice: Random) -> Volume:
    return volume(
        f"pv-{number}",
        f"data-{number}",
        gib=dice.randint(1, 4) * 10,
        notes=_notes(dice),
        phase=dice.choice(["Bound"] * 7 + ["Released", "Available", "Failed"]),
        reclaim_policy=dice.choice(["Delete", "Retain"]),
        class_name=dice.choice(["local", "slow"]),
        deleting=dice.random() < 0.1,
    )


def _claim(number: int, dice: Random) -> Claim:
    its_pod = dice.choice([None, None, None, replace(owner("Pod", "db-0"), uid=f"uid-{NAMESPACE}-db-0")])
    return claim(f"data-{number}", notes=_notes(dice), owner=its_pod)


def _notes(dice: Random) -> Notes:
    by_intent = {names.DRAIN_POLICY_REBOOT: dice.choice(_WORDS), names.DRAIN_POLICY_RETIRE: dice.choice(_WORDS)}
    said = [(key, word) for key, word in by_intent.items() if word and dice.random() < 0.3]
    return tuple(sorted((*notes(dice.choice(_WORDS), ack=dice.choice([None, None, None, "ann"])), *said)))


def _pod(number: int, dice: Random) -> Pod:
    claims = [f"data-{other}" for other in range(5) if dice.random() < 0.25]
    return pod(
        f"db-{number}",
        *claims,
        ephemeral=tuple(claims[: dice.randint(0, 1)]),
        owner=dice.choice([None, owner(), owner(), owner("DaemonSet", "agent")]),
        phase=dice.choice(["Running", "Running", "Running", "Pending", "Succeeded"]),
        deleting_since=dice.choice(["", "", stamp(1000), stamp(10)]),
        inline=dice.choice([(), (DRIVER,)]),
    )


def permuted(value: Any, dice: Random) -> Any:
    """Of each tuple in the snapshot another order."""
    if isinstance(value, Snapshot | Own):
        return replace(value, **{field.name: permuted(getattr(value, field.name), dice) for field in fields(value)})
    if isinstance(value, tuple):
        items = [permuted(item, dice) for item in value]
        return tuple(dice.sample(items, len(items)))
    return dict(dice.sample(list(value.items()), len(value))) if isinstance(value, dict) else value
