"""Nodes with all kinds of things on them, drawn by dice, and the same in another order."""

from dataclasses import fields, replace
from random import Random
from typing import Any

from sidecar.drain.facts.snapshot import InFlight, Snapshot, Surroundings
from sidecar.drain.vocabulary import Policy
from sidecar.model import names
from sidecar.model.nodes import Pod, Toleration
from sidecar.model.objects import Claim, Notes, Volume
from tests.harness.drain import samples

_WORDS = (None, None, None, None, "Reprovision", "Migrate", *Policy, "Foo")


def drawn(dice: Random) -> Snapshot:
    numbers = range(dice.randint(0, 5))
    return samples.snapshot(
        node=dice.choice([None, *(samples.node(ready=ready) for ready in ("True",) * 8 + ("False", "Unknown"))]),
        volumes=tuple(_volume(number, dice) for number in numbers),
        claims=[_claim(number, dice) for number in numbers if dice.random() < 0.9],
        classes=(samples.class_(policy=dice.choice(_WORDS)), samples.class_("slow")),
        pods=tuple(_pod(number, dice) for number in range(dice.randint(0, 5))),
        contents=tuple(samples.content(f"snap-{number}", ack=dice.choice([None, "ann"])) for number in range(dice.choice([0, 0, 0, 2]))),
        in_flight=tuple(InFlight(f"uid-new-{number}", "apps", f"new-{number}", "local", 5) for number in range(dice.choice([0] * 5 + [2]))),
        untracked=("lv-1", "lv-2")[: dice.randint(0, 2)],
        untracked_blocks=dice.random() < 0.1,
        never_used=frozenset(f"pv-{number}" for number in numbers if dice.random() < 0.2),
        namespace_policies=dice.choice([{}, {}, {}, {"apps": samples.notes("Ignore")}, {"apps": samples.notes("Bar")}]),
        default_policy=dice.choice([None, None, *Policy]),
        claimants=tuple(_claimant(number, dice) for number in range(5, 5 + dice.choice([0, 0, 1, 2]))),
        attached=frozenset(f"pv-{number}" for number in numbers if dice.random() < 0.1),
        lately_used=frozenset(f"apps/data-{number}" for number in numbers if dice.random() < 0.1),
        shared_with={f"pv-{number}": ("n2", "n3") for number in numbers if dice.random() < 0.1},
        renamed=frozenset(f"pv-{number}" for number in numbers if dice.random() < 0.1),
        unplaced_contents=tuple(samples.content("snap-9", ack=dice.choice([None, "ann"])) for _ in range(dice.choice([0] * 9 + [1]))),
        unheeded_namespaces=dice.choice([frozenset(), frozenset(), frozenset({"apps"})]),
        void_acknowledgements=frozenset(f"uid-pv-{number}" for number in numbers if dice.random() < 0.2),
        budgets=dice.choice([None, *[tuple(_budget(number, dice) for number in range(dice.randint(0, 3)))] * 4]),
        surroundings=dice.choice([None, *[_around(dice)] * 4]),
        ignorance=("the claims could not be listed", "the pods could not be listed")[: dice.choice([0] * 6 + [2])],
    )


def _volume(number: int, dice: Random) -> Volume:
    return samples.volume(
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
    owner = dice.choice([None, None, None, replace(samples.owner("Pod", "db-0"), uid="uid-apps-db-0")])
    return samples.claim(f"data-{number}", notes=_notes(dice), owner=owner)


def _notes(dice: Random) -> Notes:
    by_intent = {names.DRAIN_POLICY_REBOOT: dice.choice(_WORDS), names.DRAIN_POLICY_RETIRE: dice.choice(_WORDS)}
    said = [(key, word) for key, word in by_intent.items() if word and dice.random() < 0.3]
    return tuple(sorted((*samples.notes(dice.choice(_WORDS), ack=dice.choice([None, None, None, "ann"])), *said)))


def _claimant(number: int, dice: Random) -> Pod:
    return replace(_pod(number, dice), node=dice.choice(["", "n2"]), phase="Pending")


def _pod(number: int, dice: Random) -> Pod:
    claims = [f"data-{other}" for other in range(5) if dice.random() < 0.25]
    return samples.pod(
        f"db-{number}",
        *claims,
        ephemeral=tuple(claims[: dice.randint(0, 1)]),
        owner=dice.choice([None, samples.owner(), samples.owner(), samples.owner("DaemonSet", "agent")]),
        phase=dice.choice(["Running", "Running", "Running", "Pending", "Succeeded"]),
        deleting_since=dice.choice(["", "", samples.stamp(1000), samples.stamp(10)]),
        labels={"app": dice.choice(["db", "web"])},
        inline=dice.choice([(), (samples.DRIVER,)]),
        local=dice.choice([(), ("emptyDir", "hostPath")]),
        tolerations=dice.choice([(), (Toleration("a", "Exists", "", ""), Toleration("b", "Exists", "", ""))]),
        node_selector=dice.choice([{}, {}, {}, {"disk": "nvme"}]),
    )


def _budget(number: int, dice: Random) -> Any:
    labels = dice.choice([{"app": "db"}, {"app": "web"}, {}])
    return samples.budget(f"b{number}", dice.randint(0, 3), labels=labels, observed=dice.random() < 0.8)


def _around(dice: Random) -> Surroundings:
    names = [f"m{number}" for number in range(dice.randint(0, 6))]
    nodes = []
    for name in names:
        taints = dice.choice([(), (), (), (), (samples.taint("a"), samples.taint("b"))])
        node = samples.node(name, unschedulable=dice.random() < 0.2, taints=taints)
        nodes.append(replace(node, labels={**node.labels, **dice.choice([{}, {"disk": "nvme"}])}))
    records = [
        samples.record(name, dice.randint(0, 6) * 10, of=of, pool=pool)
        for name in names
        for of in ("local", "slow")
        for pool in dice.choice([(None,), ("a", "b"), ("b",), ()])
    ]
    return Surroundings(tuple(nodes), tuple(records))


def permuted(value: Any, dice: Random) -> Any:
    """Of each tuple in the snapshot and in what it consists of, another order. Pairs and triples that are values stay as they are."""
    if isinstance(value, Snapshot | Surroundings | Pod):
        return replace(value, **{field.name: permuted(getattr(value, field.name), dice) for field in fields(value)})
    if isinstance(value, tuple):
        items = [permuted(item, dice) for item in value]
        return tuple(dice.sample(items, len(items)))
    if isinstance(value, dict):
        items = list(value.items())
        return dict(dice.sample(items, len(items)))
    if isinstance(value, type(samples.node())):
        return replace(value, taints=permuted(value.taints, dice), labels=permuted(value.labels, dice))
    return value
