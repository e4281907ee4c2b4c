"""Whether something stored still says True where a judgement does not: a True that nobody stands for must not wait for its turn."""

import json
from collections.abc import Iterable
from typing import Final

from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import validity
from sidecar.drain.publish.stored import mapping, text
from sidecar.drain.vocabulary import Intent, Status
from sidecar.model import names
from sidecar.model.objects import Json

_IN_NODE: Final = {Intent.REBOOT: names.DRAIN_READY, Intent.RETIRE: names.RETIRE_READY}
_IN_REPORT: Final = {Intent.REBOOT: "drain", Intent.RETIRE: "retire"}
_TRUE: Final = str(Status.TRUE)


def conditions(stored: Iterable[Json], assessment: Assessment) -> bool:
    """`stored` are all that the Node has. What has had its time counts as Unknown for everybody, and waits like the rest."""
    now, taken_back = assessment.at, {names.condition(assessment.driver, _IN_NODE[intent]) for intent in _not_true(assessment)}
    said = (item for item in stored if text(item, "type") in taken_back and text(item, "status") == _TRUE)
    return any(validity.counts(validity.of_condition(item), now=now) for item in said)


def report(status: Json, assessment: Assessment) -> bool:
    """`status` is that of the stored report."""
    counted = validity.verdicts(status, now=assessment.at)
    return any(text(mapping(counted, _IN_REPORT[intent]), "status") == _TRUE for intent in _not_true(assessment))


def summary(annotation: str | None, assessment: Assessment) -> bool:
    """The Node's summary."""
    if not validity.counts(validity.of_summary(annotation), now=assessment.at):
        return False
    said = json.loads(annotation or "")
    return any(text(mapping(said, _IN_REPORT[intent]), "status") == _TRUE for intent in _not_true(assessment))


def _not_true(assessment: Assessment) -> list[Intent]:
    return [intent for intent in Intent if assessment.verdict(intent).status is not Status.TRUE]
