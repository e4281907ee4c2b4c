"""What is written instead of verdicts that nobody stands for: both are Unknown. Where nothing more is stored, nothing is written.

A sidecar that starts takes back what an earlier process has said, until it has judged itself (`withdrawal_io`); the neighbour of a sidecar
that is silent does the same for the Node's conditions and summary (`gate/takeover_io`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.drain.judgement.assessment import Verdict
from sidecar.drain.publish import validity
from sidecar.drain.publish.on_node import Marks
from sidecar.drain.publish.stored import NOTHING_HELD, dated, held_of, mapping, of_this_node, text
from sidecar.drain.vocabulary import MEANING, Reason, Status
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

JUST_STARTED: Final = Verdict(
    Status.UNKNOWN, Reason.NOT_KNOWN, "the sidecar has just started: it judges the node when its driver answers and everything is listed"
)
NOT_JUDGED: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "the node is not judged any more: --drain-report is switched off")
SILENT: Final = Verdict(Status.UNKNOWN, Reason.AGENT_UNAVAILABLE, MEANING[Reason.AGENT_UNAVAILABLE].says)
_KEYS: Final = ("drain", "retire")


def conditions(stored: Iterable[Json], driver: str, said: Verdict, *, at: float) -> list[Json]:
    """Those of the Node that say more, as they should be."""
    changed = (condition for condition in validity.ours(stored, driver) if text(condition, "status") != validity.UNKNOWN)
    now = timestamps.to_text(at)
    return [{"type": condition["type"], **_as_json(said), "lastTransitionTime": now, "lastHeartbeatTime": now} for condition in changed]


def silenced(stored: Iterable[Json], driver: str, *, at: float) -> list[Json]:
    """What the neighbour of a silent sidecar makes of its conditions: of each, as the admission policy asks for that before all else."""
    now = timestamps.to_text(at)
    return [
        {"type": condition["type"], **dated(_as_json(SILENT), condition, at=at), "lastHeartbeatTime": now}
        for condition in validity.ours(stored, driver)
        if not is_silenced(condition)
    ]


def is_silenced(condition: Json) -> bool:
    return (text(condition, "status"), text(condition, "reason")) == (str(SILENT.status), str(SILENT.reason))


def summary(annotations: Mapping[str, str], driver: str, said: Verdict) -> Marks:
    """Of the Node. It says no more than the reason, so that it can be compared letter by letter (admission.yaml)."""
    key = names.of_driver(driver, names.DRAIN_SUMMARY)
    return Marks({key: _summary(said)}) if _says_more(annotations.get(key)) else Marks()


def report_status(report: Json, said: Verdict, *, node_uid: str, at: float) -> Json | None:
    """The status of the stored report as it should be; None: it says no more, or is about a former node.

    It remembers what it said, so that no event tells of a change that was none.
    """
    status = of_this_node(mapping(report, "status"), node_uid)
    before = mapping(status, "verdicts")
    # Until this process has judged, a drain that was held is held. Where nobody judges, nobody stands for that either.
    lets_go = said is NOT_JUDGED and bool(held_of(status).because)
    if not lets_go and all(text(mapping(before, key), "status") in ("", validity.UNKNOWN) for key in _KEYS):
        return None
    verdicts = {key: _verdict(mapping(before, key), said, at=at) for key in _KEYS}
    kinds = zip((names.DRAIN_READY, names.RETIRE_READY), _KEYS, strict=True)
    return {
        **status,
        **(NOTHING_HELD.as_json() if lets_go else {}),
        "verdicts": verdicts,
        "validUntil": timestamps.to_text(validity.until(at)),
        "conditions": [{"type": kind, **without_memory(verdicts[key])} for kind, key in kinds],
    }


def told_status(verdict: Json) -> str:
    """Of which status people were told last, by an event."""
    former = text(verdict, "formerStatus")
    return former if former in tuple(Status) else text(verdict, "status")


def remembering(verdict: Json, before: Json) -> Json:
    """The verdict, with what was told last if it is an Unknown: nobody is told of that, because it may be over in a moment."""
    told = told_status(before)
    hidden = text(verdict, "status") == validity.UNKNOWN and told not in ("", validity.UNKNOWN)
    return {**verdict, "formerStatus": told} if hidden else verdict


def without_memory(verdict: Json) -> Json:
    return {key: value for key, value in verdict.items() if key != "formerStatus"}


def _verdict(before: Json, said: Verdict, *, at: float) -> Json:
    return remembering({**_as_json(said), "lastTransitionTime": timestamps.to_text(at)}, before)


def _as_json(said: Verdict) -> Json:
    return {"status": str(said.status), "reason": str(said.reason), "message": said.message}


def _summary(said: Verdict) -> str:
    short = {"status": str(said.status), "reason": str(said.reason)}
    return json.dumps(dict.fromkeys(_KEYS, short), separators=(",", ":"))


def _says_more(stored: str | None) -> bool:
    """Whether a summary may say more than Unknown; one that cannot be read may say anything."""
    if stored is None:
        return False
    try:
        said = json.loads(stored)
    except (ValueError, RecursionError):
        return True
    return not isinstance(said, dict) or any(text(mapping(said, key), "status") != validity.UNKNOWN for key in _KEYS)
