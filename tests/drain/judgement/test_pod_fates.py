"""Where each pod ends up."""

from dataclasses import replace
from typing import Any

from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.pod_fates import counts_as_gone, fates_of, is_bare, overdue_seconds
from sidecar.drain.judgement.volumes import classify
from sidecar.drain.vocabulary import Fate
from sidecar.model.nodes import Pod
from tests.harness.drain import samples
from tests.harness.drain.samples import NOW

FITS, NOWHERE = Place(("pv-0",), "n2", 0, ()), Place(("pv-0",), "", 5, ())


def ends(pod: Pod, *, policy: str | None = None, place: Place | None = None, **claim: Any) -> tuple[Fate, Fate]:
    snapshot = samples.used(pods=(pod,), claims=(samples.claim(policy=policy, **claim),))
    outcome = fates_of(pod, [item for item in classify(snapshot, snapshot.pods) if item.pods], place)
    assert outcome.why
    return outcome.reboot, outcome.retire


DB = samples.pod("db-0", "data-0")


def test_a_pod_whose_volume_is_here_stays_pending_until_the_node_is_uncordoned() -> None:
    for policy, retire in [(None, Fate.STRANDED), ("Block", Fate.STRANDED), ("AllowIdle", Fate.STRANDED), ("Ignore", Fate.LOST)]:
        assert ends(DB, policy=policy) == (Fate.RETURNS, retire)


def test_a_pod_goes_with_its_volume_only_where_that_may_go_and_fits() -> None:
    for policy, place, expected in [
        ("Reprovision", FITS, (Fate.RETURNS, Fate.REPROVISIONED)),
        ("Migrate", FITS, (Fate.RETURNS, Fate.MIGRATED)),
        ("Reprovision", NOWHERE, (Fate.RETURNS, Fate.STRANDED)),
        ("Migrate", None, (Fate.RETURNS, Fate.STRANDED)),
        ("Block", FITS, (Fate.RETURNS, Fate.STRANDED)),
    ]:
        assert ends(DB, policy=policy, place=place) == expected


def test_one_volume_that_may_not_go_keeps_the_pod() -> None:
    pod = samples.pod("db-0", "data-0", "log-0")
    claims = (samples.claim("data-0", policy="Reprovision"), samples.claim("log-0", policy="Ignore"))
    snapshot = samples.used(pods=(pod,), claims=claims, volumes=(samples.volume(), samples.volume("pv-1", "log-0")))
    outcome = fates_of(pod, classify(snapshot, snapshot.pods), FITS)
    assert (outcome.reboot, outcome.retire, outcome.stranded) == (Fate.RETURNS, Fate.STRANDED, True)


def test_a_pod_that_no_drain_evicts_stays() -> None:
    for pod in [samples.pod("a", "data-0", owner=samples.owner("DaemonSet")), samples.pod("a", "data-0", static=True)]:
        assert ends(pod) == (Fate.STAYS, Fate.STAYS)


def test_a_pod_that_nobody_makes_again_is_lost() -> None:
    assert ends(samples.pod("a", "data-0", owner=None), policy="Ignore") == (Fate.LOST, Fate.LOST)
    assert ends(samples.pod("a", owner=None)) == (Fate.LOST, Fate.LOST)


def test_nothing_keeps_a_pod_that_has_no_volume_here_or_takes_its_own_with_it() -> None:
    assert ends(samples.pod("web")) == (Fate.MOVES_FREE, Fate.MOVES_FREE)
    own = replace(samples.owner("Pod", "db-0"), uid=DB.uid)
    assert ends(replace(DB, ephemeral=DB.claims), owner=own) == (
        Fate.MOVES_FREE,
        Fate.MOVES_FREE,
    )


def test_a_bare_pod_has_no_controller_and_was_not_asked_to_end() -> None:
    assert is_bare(samples.pod("a", owner=None))
    assert not is_bare(samples.pod("a"))
    assert not is_bare(samples.pod("a", owner=None, static=True))
    assert not is_bare(samples.pod("a", owner=None, deleting_since=samples.stamp()))


def test_how_long_a_pod_is_overdue() -> None:
    for text, expected in [(samples.stamp(301), 301.0), (samples.stamp(-30), -30.0), ("", -1.0), ("soon", -1.0), ("9999-99-99", -1.0)]:
        assert overdue_seconds(samples.pod(deleting_since=text), NOW) == expected


def test_an_overdue_pod_counts_as_gone_only_where_nobody_could_say_that_it_has_ended() -> None:
    for ready, gone in [("Unknown", True), ("False", False), ("True", False)]:
        overdue = samples.pod(deleting_since=samples.stamp(301))
        assert counts_as_gone(overdue, samples.snapshot(node=samples.node(ready=ready))) is gone
        assert not counts_as_gone(overdue, samples.snapshot(node=None))
