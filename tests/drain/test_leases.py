"""What a stored lease says, however it was edited, what one of ours looks like, and what is done with one."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.leases import (
    DURATION,
    Hold,
    Lease,
    LeaseView,
    Leave,
    NotWanted,
    Release,
    Renew,
    Take,
    Terms,
    body,
    decide,
    identity,
    renewal,
)
from tests.harness.drain.samples import NOW

TERMS = Terms("one", "storage", {"a": "b"}, "n1", "uid-n1", "me")


def made(now: float = NOW, *, resource_version: str = "") -> dict[str, Any]:
    return body(TERMS, now=now, resource_version=resource_version)


def test_a_lease_that_was_made_is_read_back() -> None:
    stored = made(resource_version="7")
    stored["metadata"]["uid"] = "u"
    assert Lease.of(stored) == Lease("one", "u", "7", "me", "n1", "uid-n1", NOW, float(DURATION), {"a": "b"})


def test_a_new_lease_is_guarded_by_no_version() -> None:
    assert "resourceVersion" not in made()["metadata"]


@pytest.mark.parametrize("ago", [0.0, 299.0])
def test_a_lease_is_fresh_for_five_minutes(ago: float) -> None:
    assert Lease.of(made(now=NOW - ago)).is_fresh(NOW)


@pytest.mark.parametrize("ago", [300.0, 1e6, -1.0])
def test_a_lease_is_not_fresh_later_or_when_renewed_in_the_future(ago: float) -> None:
    assert not Lease.of(made(now=NOW - ago)).is_fresh(NOW)


@pytest.mark.parametrize(
    "obj",
    [
        {"metadata": {"name": "one"}},
        {"metadata": {"name": "one"}, "spec": None},
        {"metadata": {"name": "one", "ownerReferences": None}, "spec": {"renewTime": "yesterday", "holderIdentity": None}},
        {"metadata": {"name": "one", "ownerReferences": [{"kind": "Pod", "name": "n1", "uid": "u"}]}, "spec": {}},
    ],
)
def test_a_lease_that_says_nothing_is_nobodys_and_was_never_renewed(obj: dict[str, Any]) -> None:
    assert Lease.of(obj) == Lease("one", "", "", "", "", "", 0.0, float(DURATION))


def test_another_machine_under_the_name_is_another_holder() -> None:
    assert identity("uid-1", "d") != identity("uid-2", "d")
    assert identity("uid-1", "d") != identity("uid-1", "e")


# --- the rule ---------------------------------------------------------------------------------------------------------

MINE = Lease("one", "u", "7", "me", "n1", "uid-n1", NOW - 10, float(DURATION))
THEIRS = replace(MINE, holder="them")


def view(stored: Lease | None, *, wanted: bool = True, takeable: str = "", own: bool = False) -> LeaseView:
    return LeaseView(NOW, TERMS, wanted=wanted, stored=stored, takeable=takeable, own=own)


def test_a_lease_that_is_wanted_is_created_held_renewed_and_released() -> None:
    taken = decide(view(None))
    assert taken == Take("one", made(), False, "there is none yet")
    held = decide(view(MINE))
    assert isinstance(held, Hold) and held.until == MINE.renewed + 300
    assert decide(view(replace(MINE, renewed=NOW - 300))) == Renew("one", made(resource_version="7"), "it is held, and renewed")
    assert decide(view(MINE, wanted=False)) == Release("one", "u", "7", "it is not needed any more")
    assert isinstance(decide(view(None, wanted=False)), NotWanted)


@pytest.mark.parametrize("wanted", [True, False])
def test_another_holders_lease_is_taken_only_for_a_reason_and_never_released(wanted: bool) -> None:
    assert decide(view(THEIRS, wanted=wanted)) == Leave("them has it")
    for changes in ({"takeable": "it has run out"}, {"own": True}):
        taken = decide(view(THEIRS, wanted=wanted, **changes))
        assert isinstance(taken, Take) and taken.replaces and taken.body == made(resource_version="7")


def test_a_nodes_own_lease_is_released_whatever_version_of_it_is_stored() -> None:
    assert decide(view(MINE, wanted=False, own=True)) == Release("one", "u", "", "it is not needed any more")


def test_a_renewal_to_make_sure_of_the_lease_is_written_though_it_is_fresh() -> None:
    assert renewal(TERMS, MINE, now=NOW).body == made(resource_version="7")
