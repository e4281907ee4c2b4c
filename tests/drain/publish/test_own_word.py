"""What a node's own sidecar has written, as others may read it: for how long it counts, and what is too spoiled to be read."""

from typing import Any

import pytest

from sidecar.drain.publish.own_word import OwnWord, own_word
from sidecar.drain.vocabulary import Intent, Status
from sidecar.model import names

DRIVER = "local.example"
AT, END = "2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z"
SECONDS = 1767225600.0


def report(**changes: Any) -> dict[str, Any]:
    verdict = {"status": "True", "reason": "NothingBlocks", "lastTransitionTime": AT}
    return {"nodeUID": "u", "observedAt": AT, "validUntil": END, "verdicts": {"drain": verdict, "retire": verdict}} | changes


def word(status: dict[str, Any], *conditions: dict[str, Any]) -> OwnWord | None:
    return own_word(status, conditions, driver=DRIVER, node_uid="u")


def test_it_counts_until_its_end_and_is_unknown_after_it() -> None:
    said = word(report())
    assert said is not None
    for now, status in ((SECONDS, Status.TRUE), (SECONDS + 899, Status.TRUE), (SECONDS + 900, Status.UNKNOWN)):
        assert (said.status(Intent.RETIRE, now), said.is_stale(now)) == (status, status is Status.UNKNOWN)


def test_what_it_says_of_replicas_no_other_node_sees() -> None:
    """The rest of its notes whoever judges from outside finds as well."""
    about = ["made anew next: ns/db-0: why", "locks of ns/db-0 that are open: budget", "lock of ns/db-0: marks: shut, MarkNotUnderstood: x"]
    said = word(report(notes=["disruption budgets were not checked", *about, 3]))
    assert said is not None and said.replicas == tuple(about)
    for spoiled in ("lock of a", {"lock of a": 1}, None):
        said = word(report(notes=spoiled))
        assert said is not None and said.replicas == ()


@pytest.mark.parametrize("end", ["", "soon", "2036-01-01T00:00:00Z"])
def test_an_end_that_nobody_can_have_written_makes_it_stale(end: str) -> None:
    said = word(report(validUntil=end, observedAt=""))
    assert said is not None and said.is_stale(SECONDS)


@pytest.mark.parametrize(
    "status", [{}, report(nodeUID="former"), report(verdicts={}), report(verdicts={"drain": {"status": "Maybe"}}), report(verdicts=[1])]
)
def test_what_cannot_be_read_is_no_word(status: dict[str, Any]) -> None:
    assert word(status) is None


def test_the_conditions_of_the_driver_speak_where_there_is_no_report() -> None:
    own = [
        {"type": f"{DRIVER}/{kind}", "status": "False", "lastHeartbeatTime": AT, "lastTransitionTime": AT}
        for kind in (names.DRAIN_READY, names.RETIRE_READY)
    ]
    others = {"type": f"other.example/{names.RETIRE_READY}", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}
    said = word({}, *own, others)
    assert said is not None
    assert (said.retire.status, said.retire.since, said.valid_until) == (Status.FALSE, SECONDS, SECONDS + 900)
    assert word({}, *own[:1]) is None
