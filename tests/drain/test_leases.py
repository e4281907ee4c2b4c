"""What a stored lease says, however it was edited, and what one of ours looks like."""

from typing import Any

import pytest

from sidecar.drain.leases import DURATION, Lease, body, identity
from tests.drain.samples import NOW


def made(**changes: Any) -> dict[str, Any]:
    given = {"namespace": "storage", "labels": {"a": "b"}, "node": "n1", "node_uid": "uid-n1", "holder": "me", "now": NOW, **changes}
    return body("one", **given)


def test_what_was_made_is_read_back() -> None:
    stored = made(resource_version="7")
    stored["metadata"]["uid"] = "u"
    assert Lease.of(stored) == Lease("one", "u", "7", "me", "n1", "uid-n1", NOW, float(DURATION))


def test_a_new_one_is_guarded_by_nothing() -> None:
    assert "resourceVersion" not in made()["metadata"]


@pytest.mark.parametrize("ago", [0.0, 299.0])
def test_for_five_minutes_it_is_fresh(ago: float) -> None:
    assert Lease.of(made(now=NOW - ago)).is_fresh(NOW)


@pytest.mark.parametrize("ago", [300.0, 1e6, -1.0])
def test_later_and_from_the_future_it_is_not(ago: float) -> None:
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
def test_one_that_says_nothing_is_nobodys_and_was_never_renewed(obj: dict[str, Any]) -> None:
    assert Lease.of(obj) == Lease("one", "", "", "", "", "", 0.0, float(DURATION))


def test_another_machine_under_the_name_is_another_holder() -> None:
    assert identity("uid-1", "d") != identity("uid-2", "d")
    assert identity("uid-1", "d") != identity("uid-1", "e")
