"""Until when a stored verdict counts."""

import pytest

from sidecar.drain.publish.validity import VALID_FOR, as_it_counts, counts, of_report, overdue, until, verdicts
from sidecar.drain.publish.withdrawn import SILENT
from sidecar.model import names, timestamps
from sidecar.model.objects import Json
from tests.harness.drain.samples import DRIVER, NOW

TRUE: Json = {"status": "True", "reason": "NothingBlocks", "message": "nothing blocks", "lastTransitionTime": "2020-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("valid_until", "counted"),
    [(NOW + 1, True), (NOW, False), (NOW - 1, False), (None, False), (NOW + 2 * VALID_FOR, True), (NOW + 2 * VALID_FOR + 1, False)],
)
def test_past_its_time_a_verdict_is_not_known_any_more(valid_until: float | None, counted: bool) -> None:
    assert counts(valid_until, now=NOW) is counted
    told = as_it_counts(TRUE, valid_until=valid_until, now=NOW)
    assert told == (TRUE if counted else {**TRUE, "status": "Unknown", "reason": "AgentUnavailable", "message": SILENT.message})


def test_an_unknown_keeps_its_reason() -> None:
    unknown = {**TRUE, "status": "Unknown", "reason": "NotKnown"}
    assert as_it_counts(unknown, valid_until=None, now=NOW) == unknown


def test_a_report_says_until_when_and_an_older_one_when_it_was_made() -> None:
    noted = {"validUntil": timestamps.to_text(NOW + 5), "observedAt": timestamps.to_text(NOW - 5000)}
    assert of_report(noted) == NOW + 5
    assert of_report({"observedAt": timestamps.to_text(NOW)}) == until(NOW)
    assert of_report({}) is None
    status = {"verdicts": {"drain": TRUE, "retire": TRUE}, "observedAt": timestamps.to_text(NOW)}
    assert [verdict["status"] for verdict in verdicts(status, now=NOW).values()] == ["True", "True"]
    assert [verdict["status"] for verdict in verdicts(status, now=NOW + VALID_FOR).values()] == ["Unknown", "Unknown"]
    assert verdicts({}, now=NOW)["drain"]["status"] == "Unknown"


def condition(status: str, *, age: float | None, driver: str = DRIVER) -> Json:
    heartbeat = {} if age is None else {"lastHeartbeatTime": timestamps.to_text(NOW - age)}
    return {"type": names.condition(driver, names.RETIRE_READY), "status": status, **heartbeat}


@pytest.mark.parametrize(
    ("found", "is_overdue"),
    [
        (condition("True", age=899), False),
        (condition("True", age=900), True),
        (condition("False", age=900), True),
        (condition("Unknown", age=900), False),
        (condition("True", age=None), True),
        (condition("True", age=900, driver="other.example.com"), False),
        ({"type": "Ready", "status": "True"}, False),
    ],
)
def test_a_condition_that_nobody_renews_is_overdue(found: Json, is_overdue: bool) -> None:
    assert overdue([{"type": "MemoryPressure", "status": "False"}, found], DRIVER, now=NOW) is is_overdue
