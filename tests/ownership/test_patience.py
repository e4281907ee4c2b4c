"""How long nodes that lag behind leave a claim to those before them: what each does is asked of the rule, for all ranks and lags."""

import math

from hypothesis import given
from hypothesis import strategies as st

from sidecar.model.objects import Claim
from sidecar.ownership.placement import SINGLE_STEPS, RandomDelay, Ranked
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import Measure, OwnershipView, Race, Wait, decide
from tests.harness import samples

NODES = [f"n{number}" for number in range(100)]
ROSTER = Roster.of(NODES, {})
CLAIM = samples.claim()
ORDER = ROSTER.order(CLAIM.uid, CLAIM.requested or 0)
RANKED = Ranked(RandomDelay(20.0, 60.0), step=0.4)
LONGEST = 300.0
SOON = 20.5
BEAT = 0.32

lags = st.floats(min_value=0.21, max_value=100.0)
chances = st.lists(st.floats(min_value=0.0, max_value=1.0, exclude_max=True), min_size=1, max_size=9)


def view(
    node: str, now: float, race: Race | None, *, lag: float, chance: float, claim: Claim = CLAIM, watch_down: bool = False
) -> OwnershipView:
    return OwnershipView(
        now=now,
        node=node,
        segment=samples.info().segment,
        with_topology=True,
        bids=True,
        placement=RANKED,
        chance=chance,
        claim=claim,
        class_=samples.class_(volumeBindingMode="Immediate"),
        race=race,
        free=None,
        roster=ROSTER,
        local_delay=lag,
        watch_down=watch_down,
    )


def turn(rank: int, *, lag: float, drawn: list[float], heals_at: float = math.inf, watch_down: bool = False) -> float:
    """Seconds after which the node of that rank asks about a claim of which it hears nothing. It lags no more from `heals_at` on."""
    now, race = 0.0, None
    for number in range(200):
        lags = lag if now < heals_at else 0.0
        decision = decide(view(ORDER[rank], now, race, lag=lags, chance=drawn[number % len(drawn)], watch_down=watch_down))
        if isinstance(decision, Measure):
            return now
        assert isinstance(decision, Wait)
        now, race = decision.until, decision.race
    raise AssertionError("it never has its turn")


def test_who_does_not_lag_has_its_turn_by_its_rank_alone() -> None:
    for lag in [0.0, 0.19]:
        for rank in range(1, SINGLE_STEPS):
            assert RANKED.delay(rank, 0.5) <= turn(rank, lag=lag, drawn=[0.5]) <= RANKED.delay(rank, 0.5) + BEAT


@given(rank=st.integers(min_value=1, max_value=99), lag=lags, drawn=chances)
def test_nobody_looks_before_the_write_of_the_first_and_its_news_have_had_their_time(rank: int, lag: float, drawn: list[float]) -> None:
    assert turn(rank, lag=lag, drawn=drawn) >= min(2.0 * lag, LONGEST)


@given(rank=st.integers(min_value=1, max_value=99), lag=lags, heals_at=st.floats(min_value=0.0, max_value=LONGEST), drawn=chances)
def test_what_was_put_off_comes_soon_after_the_lag_is_over(rank: int, lag: float, heals_at: float, drawn: list[float]) -> None:
    """It was put off by what its node lagged then: for up to five minutes, of which a minute of trouble was enough."""
    own_turn = RANKED.delay(rank, 1.0) + BEAT
    assert turn(rank, lag=lag, drawn=drawn, heals_at=heals_at) <= max(heals_at, own_turn) + SOON
