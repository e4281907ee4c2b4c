"""What keeps an idle instance small: what it keeps of each object, and how much it holds while it lists.

Absolute figures beside the peer's, on a real API server, are what `hack/bench memory` measures.
"""

from __future__ import annotations

import pytest

from tests.harness.memory import Cluster, Held, held_by, some_claim, some_volume

# Today 2.3 kB for a claim that this node may write, and 1.9 kB for a volume of this node.
OWN_LIMIT_BYTES = 3_000


@pytest.fixture(scope="module")
def nothing() -> Held:
    held_by(Cluster())  # once to warm up: what is imported or cached at first use belongs to nobody
    return held_by(Cluster())


def test_nothing_is_kept_of_objects_that_are_not_ours(nothing: Held) -> None:
    """Of another driver, or of ours on another node. Thousands of them must not leave a trace."""
    for claim, volume in (
        (some_claim(driver="other", node="bar"), some_volume(driver="other")),
        (some_claim(node="bar"), some_volume(node="bar")),
    ):
        held = held_by(Cluster(persistentvolumeclaims=(claim, 2_500), persistentvolumes=(volume, 2_500)))
        assert (held.claims, held.volumes) == (0, 0)
        assert (held.after - nothing.after) / 5_000 < 16


def test_what_is_kept_of_our_own_objects_is_small(nothing: Held) -> None:
    """A claim that we may write is the dearest: it is kept whole, though without the fields' history."""
    waiting = held_by(Cluster(persistentvolumeclaims=(some_claim(), 1_000)))
    assert waiting.claims == 1_000
    assert (waiting.after - nothing.after) / 1_000 < OWN_LIMIT_BYTES
    living = held_by(Cluster(persistentvolumes=(some_volume(), 1_000)))
    assert living.volumes == 1_000
    assert (living.after - nothing.after) / 1_000 < OWN_LIMIT_BYTES


def test_what_a_list_takes_while_it_lasts_is_a_page_and_not_the_list() -> None:
    """Memory that was once taken for a whole list is hardly ever given back to the system."""
    claim, volume = some_claim(node="bar"), some_volume(node="bar")
    short, long = (held_by(Cluster(persistentvolumeclaims=(claim, count), persistentvolumes=(volume, count))) for count in (1_000, 3_000))
    assert (long.peak - short.peak) / 4_000 < 300
