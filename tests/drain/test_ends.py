"""Where each pod ends up."""

from typing import Any

import pytest

from sidecar.drain.assessment import Place
from sidecar.drain.ends import bare, outcome_of
from sidecar.drain.volumes import classify
from sidecar.drain.words import End
from sidecar.model.nodes import Pod
from tests.drain import samples

FITS, NOWHERE = Place(("pv-0",), "n2", 0, ()), Place(("pv-0",), "", 5, ())


def ends(pod: Pod, *, policy: str | None = None, place: Place | None = None, **claim: Any) -> tuple[End, End]:
    snapshot = samples.used(pods=(pod,), claims=(samples.claim(policy=policy, **claim),))
    outcome = outcome_of(pod, [item for item in classify(snapshot, snapshot.pods) if item.pods], place)
    assert outcome.why
    return outcome.reboot, outcome.retire


DB = samples.pod("db-0", "data-0")


@pytest.mark.parametrize(
    ("policy", "retire"), [(None, End.STRANDED), ("Block", End.STRANDED), ("AllowIdle", End.STRANDED), ("Ignore", End.LOST)]
)
def test_a_pod_whose_volume_is_here_sits_out_a_reboot(policy: str | None, retire: End) -> None:
    assert ends(DB, policy=policy) == (End.RETURNS, retire)


@pytest.mark.parametrize(
    ("policy", "place", "expected"),
    [
        ("Reprovision", FITS, (End.REPROVISIONED,) * 2),
        ("Migrate", FITS, (End.MIGRATED,) * 2),
        ("Reprovision", NOWHERE, (End.RETURNS, End.STRANDED)),
        ("Migrate", None, (End.RETURNS, End.STRANDED)),
        ("Block", FITS, (End.RETURNS, End.STRANDED)),
    ],
)
def test_a_pod_goes_with_its_volume_only_where_that_may_go_and_fits(policy: str, place: Place | None, expected: tuple[End, End]) -> None:
    assert ends(DB, policy=policy, place=place) == expected


def test_one_volume_that_may_not_go_keeps_the_pod() -> None:
    pod = samples.pod("db-0", "data-0", "log-0")
    claims = (samples.claim("data-0", policy="Reprovision"), samples.claim("log-0", policy="Ignore"))
    snapshot = samples.used(pods=(pod,), claims=claims, volumes=(samples.volume(), samples.volume("pv-1", "log-0")))
    outcome = outcome_of(pod, classify(snapshot, snapshot.pods), FITS)
    assert (outcome.reboot, outcome.retire, outcome.stranded) == (End.RETURNS, End.STRANDED, True)


@pytest.mark.parametrize("pod", [samples.pod("a", "data-0", owner=samples.owner("DaemonSet")), samples.pod("a", "data-0", static=True)])
def test_what_nobody_evicts_stays(pod: Pod) -> None:
    assert ends(pod) == (End.STAYS, End.STAYS)


def test_a_pod_that_nobody_makes_again_is_lost() -> None:
    assert ends(samples.pod("a", "data-0", owner=None), policy="Ignore") == (End.LOST, End.LOST)
    assert ends(samples.pod("a", owner=None)) == (End.LOST, End.LOST)


def test_nothing_keeps_a_pod_that_has_no_volume_here_or_takes_its_own_with_it() -> None:
    assert ends(samples.pod("web")) == (End.MOVES_FREE, End.MOVES_FREE)
    assert ends(DB, owner=samples.owner("Pod", "db-0")) == (End.MOVES_FREE, End.MOVES_FREE)


def test_a_bare_pod_is_one_that_an_eviction_would_end_against_everybodys_will() -> None:
    assert bare(samples.pod("a", owner=None))
    assert not bare(samples.pod("a"))
    assert not bare(samples.pod("a", owner=None, static=True))
    assert not bare(samples.pod("a", owner=None, deleting_since=samples.stamp()))
