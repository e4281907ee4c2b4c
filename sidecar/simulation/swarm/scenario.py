"""What a race is run with: cluster, load, trouble and network as one value. All chance is drawn from its seed."""

import random
from dataclasses import field
from typing import Final

from sidecar.frozen import frozen
from sidecar.model.quantity import format_bytes
from sidecar.simulation.world.network import Latency

RANDOM: Final = "random"
RANKED: Final = "ranked"
PLACEMENTS: Final = (RANDOM, RANKED)


@frozen(kw_only=True)
class Scenario:
    """Times are seconds, space is bytes, shares are parts of one."""

    nodes: int = 30
    claims: int = 1000
    rate: float = 25.0
    """Claims a second, at random moments."""
    burst: bool = False
    """All claims at once instead."""
    placement: str = RANDOM
    base_delay: float = 20.0
    max_delay: float = 60.0
    step: float | None = None
    """Of ranked placement; None is what the program has."""
    refresh: float = 600.0
    """Seconds after which a node lists the contenders and their figures again."""
    figures: bool = True
    """Whether nodes publish how much is free."""
    space: tuple[int, ...] = (1 << 40,)
    """Of the first node, the second …, and from the beginning again."""
    size: int = 1 << 30
    """Of a claim."""
    full: float = 0.0
    """Share of nodes that have run full since everybody's last list."""
    dead: float = 0.0
    """Share of nodes that are listed and do not run."""
    restarts: int = 0
    partitions: int = 0
    away: float = 10.0
    """Seconds that a restart or a partition takes."""
    rolling: float = 0.0
    """Share of nodes that still run upstream's rule: random delays, and no account of what is promised."""
    liars: int = 0
    """Nodes whose driver says that it has room, and that it has none when it is to create a volume."""
    snapshots: bool = False
    """Every claim is to be filled from a snapshot, which lies on one of the nodes."""
    impossible: int = 0
    """Claims that fit on no node, in a namespace of their own; they are there before the others come."""
    standing: float = 60.0
    """Seconds before; in a minute every node has looked at them."""
    qps: float | None = None
    """Requests to the API server that each node may send in a second, and twice as many at once; None: as many as it likes."""
    server_requests: float | None = None
    """Requests that the API server answers in a second, of nodes, users and controllers together; None: as many as come."""
    server_events: float | None = None
    """Watch events that it sends in a second, to all nodes together; None: as many as there are."""
    watch: Latency = field(default_factory=lambda: Latency(0.010, 0.200))
    write: Latency = field(default_factory=lambda: Latency(0.005, 0.050))
    capacity: Latency = field(default_factory=lambda: Latency(0.002, 0.020))
    creation: Latency = field(default_factory=lambda: Latency(0.050, 0.500))
    window: float | None = None
    """A fixed time from the beginning of a bid until everybody has seen it, instead of GetCapacity, write and watch of the owner.
    Of a new claim everybody then hears at the same time too, after the mean of the watch."""
    patience: float = 900.0
    """After the last claim; what has no volume by then gets none."""
    seed: int = 1

    def faults(self) -> list[str]:
        """Everything that is wrong with it, at once."""
        checks = [
            (self.nodes < 1, "there must be at least one node"),
            (self.claims < 1, "there must be at least one claim"),
            (self.rate <= 0, "claims must come at more than none a second"),
            (self.placement not in PLACEMENTS, f"placement {self.placement!r} is none of {', '.join(PLACEMENTS)}"),
            (self.base_delay <= 0, "the base delay must be more than nothing"),
            (self.max_delay <= 0, "the longest delay must be more than nothing"),
            (self.step is not None and self.step <= 0, "the step must be more than nothing"),
            (self.refresh <= 0, "the time between two lists must be more than nothing"),
            (not self.space or min(self.space, default=1) <= 0, "every node must have some space"),
            (self.size <= 0, "claims must ask for some space"),
            (any(not 0 <= share <= 1 for share in (self.full, self.dead, self.rolling)), "a share is between 0 and 1"),
            (self.dead + self.full > 1, "dead and full nodes together are more than there are"),
            (not 0 <= self.liars <= self.nodes, "there must be at least as many nodes as liars"),
            (self.impossible < 0, "claims that fit nowhere are none or more"),
            (self.standing < 0, "claims that fit nowhere come before the others, or with them"),
            (self.qps is not None and self.qps <= 0, "a node must be allowed some requests"),
            (any(rate is not None and rate <= 0 for rate in (self.server_requests, self.server_events)), "an API server serves something"),
            (min(self.restarts, self.partitions) < 0, "nothing happens less than never"),
            (self.away <= 0, "being away takes more than no time"),
            (self.window is not None and self.window < 0, "the window cannot be negative"),
            (self.patience <= 0, "patience must be more than none"),
        ]
        return [fault for wrong, fault in checks if wrong]

    @property
    def is_server_busy(self) -> bool:
        return self.server_requests is not None or self.server_events is not None

    def dice(self, purpose: str) -> random.Random:
        """Each purpose has its own, so that leaving one thing out changes nothing about the others."""
        return random.Random(f"swarm {purpose} {self.seed}")

    def arrivals(self) -> list[float]:
        """The time at which each claim is created."""
        if self.burst:
            return [0.0] * self.claims
        dice, now, times = self.dice("arrivals"), 0.0, []
        for _ in range(self.claims):
            now += dice.expovariate(self.rate)
            times.append(now)
        return times

    def cast(self) -> "list[Part]":
        """The part of each node."""
        numbers = list(range(self.nodes))
        self.dice("cast").shuffle(numbers)
        dead = set(numbers[: round(self.dead * self.nodes)])
        full = set(numbers[len(dead) : len(dead) + round(self.full * self.nodes)])
        running = [number for number in numbers if number not in dead]
        liars = set(self.dice("liars").sample(running, min(len(running), self.liars)))
        old = set(self.dice("rolling").sample(running, min(len(running), round(self.rolling * self.nodes))))
        return [
            Part(
                f"n{number}",
                self.space[number % len(self.space)],
                dead=number in dead,
                full=number in full,
                upstream=number in old,
                lies=number in liars,
            )
            for number in range(self.nodes)
        ]

    def troubles(self) -> "list[Trouble]":
        """Restarts and partitions while claims come, in order."""
        dice, ends = self.dice("troubles"), self.arrivals()[-1] or self.away
        running = [part.name for part in self.cast() if not part.dead]
        kinds = [True] * self.restarts + [False] * self.partitions
        drawn = [Trouble(dice.uniform(0.0, ends), dice.choice(running), restart=restart) for restart in kinds] if running else []
        return sorted(drawn, key=lambda trouble: trouble.at)

    def __str__(self) -> str:
        load = "all at once" if self.burst else f"{self.rate:g} a second"
        space = ", ".join(format_bytes(each) for each in self.space)
        return f"{self.nodes} nodes of {space}, {self.claims} claims of {format_bytes(self.size)} {load}, {self.placement}"


@frozen
class Part:
    """One node's part in it."""

    name: str
    space: int
    dead: bool = False
    full: bool = False
    upstream: bool = False
    lies: bool = False

    @property
    def usable(self) -> int:
        return 0 if self.dead or self.full or self.lies else self.space


@frozen
class Trouble:
    """One node is away for a while."""

    at: float
    node: str
    restart: bool
    """Its process is; otherwise its connection to the API server."""
