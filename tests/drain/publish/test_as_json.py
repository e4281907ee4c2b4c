"""The figures that every rendering takes: what lies here, and what of it is in the way."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import InFlight, Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.publish.as_json import as_json, bytes_in_the_way, held_bytes
from sidecar.drain.vocabulary import Intent
from sidecar.model.nodes import Pod
from tests.harness.drain import samples, worlds
from tests.harness.drain.samples import GIB

LONE, OTHER = (samples.pod(name, *claims, owner=None) for name, claims in (("a", ("data-0", "data-1")), ("b", ("data-0",))))
OF_LONE = replace(samples.owner("Pod", "a"), uid=LONE.uid)


def world(*policies: str | None, pods: tuple[Pod, ...] = (), **changes: object) -> Snapshot:
    """Of 10 Gi, 20 Gi and so on."""
    volumes = tuple(samples.volume(f"pv-{n}", f"data-{n}", gib=10 * (n + 1), policy=policy) for n, policy in enumerate(policies))
    return samples.snapshot(volumes=volumes, pods=pods, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("snapshot", "reboot", "retire"),
    [
        pytest.param(world("Ignore", "Ignore", pods=(LONE,)), 30, 30, id="all volumes of a pod"),
        pytest.param(world("Ignore", "Ignore", pods=(LONE, OTHER)), 30, 30, id="of two pods that share one"),
        pytest.param(world("Ignore", "Block", pods=(LONE,)), 30, 30, id="one blocks by itself as well"),
        pytest.param(world("Ignore", "Block", None, pods=(OTHER,)), 10, 60, id="others block without a pod"),
        pytest.param(world("Ignore", pods=(samples.pod("db-0", "data-0"),), budgets=(samples.budget(allowed=0),)), 10, 0, id="a budget"),
        pytest.param(
            world("Ignore", "Ignore", pods=(replace(LONE, ephemeral=("data-1",)),), claims=[samples.claim("data-1", owner=OF_LONE)]),
            10,
            10,
            id="what ends with its pod is not in the way",
        ),
    ],
)
def test_each_volume_that_is_in_the_way_counts_once(snapshot: Snapshot, reboot: int, retire: int) -> None:
    found = assess(snapshot)
    assert [bytes_in_the_way(found, intent) for intent in Intent] == [reboot * GIB, retire * GIB]
    assert as_json(found)["bytes"]["remaining"] == retire * GIB


def test_what_is_no_volume_counts_too_and_beside_a_volume_of_its_name() -> None:
    flights = tuple(InFlight(f"uid-{n}", "apps", f"new-{n}", "local", GIB) for n in range(2))
    found = assess(world("Block", in_flight=flights, contents=(samples.content("pv-0", gib=3),)))
    assert bytes_in_the_way(found) == held_bytes(found) == 15 * GIB


@given(st.integers(0, 2**32))
def test_what_is_in_the_way_is_of_what_lies_here(seed: int) -> None:
    found = assess(worlds.drawn(Random(seed)))
    for intent in Intent:
        blocking = [blocker for blocker in found.blockers if intent in blocker.blocks]
        assert max((blocker.bytes for blocker in blocking), default=0) <= bytes_in_the_way(found, intent) <= held_bytes(found)
