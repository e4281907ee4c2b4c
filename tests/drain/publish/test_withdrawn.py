"""Verdicts that nobody stands for become Unknown, and what says no more already is left alone."""

from dataclasses import replace

from sidecar.drain.publish import on_node, report
from sidecar.drain.publish.events import events
from sidecar.drain.publish.report import ReportContext
from sidecar.drain.publish.validity import VALID_FOR, as_it_counts, counts, of_report, overdue, until, verdicts
from sidecar.drain.publish.withdrawn import JUST_STARTED, SILENT, conditions, report_status, silenced, summary
from sidecar.drain.vocabulary import Reason, Status
from sidecar.model import names, timestamps
from sidecar.model.objects import Json
from tests.harness.drain.judgements import DRIVER, NOW, UID, blocked, later, ready, verdict

KEY = names.of_driver(DRIVER, names.DRAIN_SUMMARY)
FOREIGN = {"type": "Ready", "status": "True"}
SETTLING = ReportContext(settling=True)
UNKNOWN = verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "pods are not listed yet")


def test_conditions_that_say_more_are_withdrawn() -> None:
    for judged in [
        ready(),  # True
        blocked(),  # False
    ]:
        stored = on_node.conditions(judged, [])
        changed = conditions([FOREIGN, *stored], DRIVER, JUST_STARTED, at=NOW + 9)
        assert [item["type"] for item in changed] == [item["type"] for item in stored]
        assert {(item["status"], item["reason"]) for item in changed} == {("Unknown", "NotKnown")}
        assert conditions(changed, DRIVER, SILENT, at=NOW + 99) == []
        assert conditions([FOREIGN], DRIVER, SILENT, at=NOW) == []
        assert conditions(stored, "other.example.com", SILENT, at=NOW) == []


def test_a_silent_sidecar_s_conditions_say_so_even_where_they_were_unknown() -> None:
    judged = ready()
    stored = on_node.conditions(replace(judged, drain=UNKNOWN), [])
    changed = silenced([FOREIGN, *stored], DRIVER, at=NOW + 9)
    assert [item["type"] for item in changed] == [item["type"] for item in stored]
    assert {(item["status"], item["reason"]) for item in changed} == {("Unknown", "AgentUnavailable")}
    pairs = list(zip(stored, changed, strict=True))
    assert [after["lastTransitionTime"] == before["lastTransitionTime"] for before, after in pairs] == [True, False]
    assert all(after["lastHeartbeatTime"] > before["lastHeartbeatTime"] for before, after in pairs)
    assert silenced(changed, DRIVER, at=NOW + 99) == []


def test_a_summary_that_says_more_is_withdrawn() -> None:
    said = summary({KEY: on_node.summary(ready())}, DRIVER, SILENT).annotations[KEY]
    short = '{"status":"Unknown","reason":"AgentUnavailable"}'
    assert said == f'{{"drain":{short},"retire":{short}}}', "admission.yaml compares it letter by letter"
    assert summary({KEY: said}, DRIVER, SILENT).annotations == {}
    assert summary({}, DRIVER, SILENT).annotations == {}


def test_a_summary_that_cannot_be_read_may_say_anything() -> None:
    for stored in ["{", "[]", "7", '{"drain": "True"}']:
        assert summary({KEY: stored}, DRIVER, SILENT).annotations


def stored_report(judged: on_node.Assessment, previous: Json | None = None, context: ReportContext = report.NORMAL_LIFE) -> Json:
    return report.body(judged, previous=previous, agent="1", context=context)


def withdrawn(of: Json) -> Json:
    status = report_status(of, JUST_STARTED, node_uid=UID, at=NOW + 9)
    assert status is not None
    return {**of, "status": status}


def test_a_report_that_says_more_is_withdrawn_and_keeps_the_rest() -> None:
    before = stored_report(blocked())
    status = withdrawn(before)["status"]
    assert [item["status"] for item in status["verdicts"].values()] == ["Unknown", "Unknown"]
    assert [item["status"] for item in status["conditions"]] == ["Unknown", "Unknown"]
    assert status["blockers"] == before["status"]["blockers"]
    assert report_status({"status": status}, JUST_STARTED, node_uid=UID, at=NOW) is None
    assert report_status(before, JUST_STARTED, node_uid="of another machine", at=NOW) is None
    assert report_status({}, JUST_STARTED, node_uid=UID, at=NOW) is None


def told(before: Json, after: on_node.Assessment, *, settling: bool) -> list[str]:
    return [event.reason for event in events(before["status"], after, observed=False, settling=settling)]


def test_a_restart_is_no_news() -> None:
    """True, taken back, not known yet, True again: nobody hears of it."""
    started = withdrawn(stored_report(ready()))
    unknown = later(ready(drain=UNKNOWN, retire=UNKNOWN))
    assert told(started, later(ready()), settling=True) == []
    assert told(started, unknown, settling=True) == []
    looked = stored_report(unknown, started, SETTLING)
    assert told(looked, later(ready()), settling=False) == []
    assert "formerStatus" not in str(stored_report(later(ready()), looked))


def test_an_unknown_that_lasts_is_told_once() -> None:
    unknown = later(ready(drain=UNKNOWN, retire=UNKNOWN))
    looked = stored_report(unknown, withdrawn(stored_report(ready())), SETTLING)
    assert told(looked, unknown, settling=False) == [names.NODE_DRAIN_UNKNOWN, names.NODE_RETIRE_UNKNOWN]
    settled = stored_report(unknown, looked)
    assert told(settled, unknown, settling=False) == []
    assert told(settled, later(ready()), settling=False) == [names.NODE_DRAIN_READY, names.NODE_RETIRE_READY]


def test_a_change_over_a_restart_is_told_at_once() -> None:
    started = withdrawn(stored_report(ready()))
    assert told(started, later(blocked()), settling=True) == [names.NODE_RETIRE_BLOCKED]
    assert told(stored_report(later(blocked()), started, SETTLING), later(blocked()), settling=True) == []


# --- Until when a stored verdict counts ---


TRUE: Json = {"status": "True", "reason": "NothingBlocks", "message": "nothing blocks", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def test_past_its_time_a_verdict_is_not_known_any_more() -> None:
    for valid_until, counted in [
        (NOW + 1, True),
        (NOW, False),
        (NOW - 1, False),
        (None, False),
        (NOW + 2 * VALID_FOR, True),
        (NOW + 2 * VALID_FOR + 1, False),
    ]:
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


def test_a_condition_that_nobody_renews_is_overdue() -> None:
    for found, is_overdue in [
        (condition("True", age=899), False),
        (condition("True", age=900), True),
        (condition("False", age=900), True),
        (condition("Unknown", age=900), False),
        (condition("True", age=None), True),
        (condition("True", age=900, driver="other.example.com"), False),
        ({"type": "Ready", "status": "True"}, False),
    ]:
        assert overdue([{"type": "MemoryPressure", "status": "False"}, found], DRIVER, now=NOW) is is_overdue
