"""One node and driver, as a row of `explain nodes` and as plain JSON. Words and figures are those of the report."""

from collections.abc import Iterable, Sequence

from sidecar.commands.explain.judged import Judged, as_since
from sidecar.commands.text import age, size
from sidecar.drain import report
from sidecar.drain.blockers import Blocker
from sidecar.drain.gate import regardless
from sidecar.drain.report import bytes_in_the_way
from sidecar.drain.words import Intent
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

NARROW = ("NODE", "DRIVER", "DRAIN", "RETIRE", "BLOCKERS", "REASON", "BYTES", "EVACUATION", "ITS SIDECAR SAYS")
WIDE = (*NARROW, "FIRST BLOCKER", "UNTIL")
_VERDICT = {Intent.REBOOT: "drain", Intent.RETIRE: "retire"}


# --- for people -------------------------------------------------------------------------------------------------------


def row(judged: Judged, intent: Intent | None, *, wide: bool) -> tuple[str, ...]:
    """As many columns as the heads. `intent`: what blocks that alone."""
    one, blocking = judged.assessment, _blocking(judged, intent)
    in_the_way = bytes_in_the_way(one, intent or Intent.RETIRE)
    narrow = (
        one.node,
        one.driver,
        str(one.drain.status),
        str(one.retire.status),
        str(len(blocking)),
        _reason(judged, blocking, intent),
        size(in_the_way) if in_the_way else "",
        _evacuation(judged),
        "; ".join(_own(judged, tuple(Intent))),
    )
    if not wide:
        return narrow
    first = f"{blocking[0].named}: {blocking[0].message}" if blocking else one.verdict(intent or Intent.RETIRE).message
    return (*narrow, first, "; ".join(_ends(judged)))


def about_own_word(judged: Judged, intent: Intent | None) -> list[str]:
    """Lines for `explain node`: its sidecar's verdicts, who holds a drain, what passes by itself, and when."""
    verdicts = "; ".join(_own(judged, (intent,) if intent else tuple(Intent)))
    said = [verdicts] if verdicts else []
    said += judged.word.lines if judged.word else ()
    beside = [judged.unannounced] if judged.unannounced and not (judged.word and judged.word.held) else []
    if judged.word and judged.word.is_stale:
        forced = judged.marks.forced if judged.marks else ""
        said_so = f"{names.FORCE_DRAIN} says {forced!r}: it opens once the sidecar of another node has seen that" if forced else ""
        beside.append(f"a gate that stands there opens on a person's word alone; {said_so or regardless(judged.assessment.node)}")
    return [*(f"its own sidecar says: {line}" for line in said), *beside, *_ends(judged)]


def _blocking(judged: Judged, intent: Intent | None) -> Sequence[Blocker]:
    return [blocker for blocker in judged.assessment.blockers if intent is None or intent in blocker.blocks]


def _reason(judged: Judged, blocking: Sequence[Blocker], intent: Intent | None) -> str:
    """What withholds a True: the first blocker, or what is not known; and whose word that is, where it is that of its own sidecar."""
    if blocking:
        return str(blocking[0].reason)
    asked = intent or Intent.RETIRE
    return f"{judged.assessment.verdict(asked).reason}{' (its sidecar)' if asked in judged.own else ''}"


def _evacuation(judged: Judged) -> str:
    record = judged.marks.record if judged.marks else None
    if record is None or record.state is None:
        return ""
    return str(record.state) + (f" for {age(judged.assessment.at - record.started_at)}" if record.started_at is not None else "")


def _own(judged: Judged, asked: Sequence[Intent]) -> Iterable[str]:
    word, now = judged.word, judged.assessment.at
    if word is None:
        return
    yield from (f"{_VERDICT[intent]} {as_since(word.said[intent], now)}" for intent in asked)
    if word.is_stale:
        last = "" if word.seen_at is None else f", last said {age(now - word.seen_at)} ago"
        yield f"stale{last}, so it counts as Unknown"


def _ends(judged: Judged) -> list[str]:
    return [f"{what}: until {timestamps.to_text(at)}" for what, at in judged.ends]


# --- for programs -----------------------------------------------------------------------------------------------------


def as_json(judged: Judged) -> Json:
    """All of it, for `explain node`."""
    return report.as_json(judged.assessment) | _verdicts(judged) | _beside(judged)


def summary(judged: Judged, intent: Intent | None) -> Json:
    """One row."""
    one, blocking = judged.assessment, _blocking(judged, intent)
    first = {"object": blocking[0].named, "reason": str(blocking[0].reason), "message": blocking[0].message} if blocking else None
    return {
        "node": one.node,
        "driver": one.driver,
        **_verdicts(judged),
        "blockers": len(blocking),
        **({"firstBlocker": first} if first else {}),
        "bytes": {"total": sum(thing.bytes for thing in one.things), "inTheWay": bytes_in_the_way(one, intent or Intent.RETIRE)},
        **_beside(judged),
    }


def _verdicts(judged: Judged) -> Json:
    """Those that count, and whose word each is."""
    told = report.as_json(judged.assessment)["verdicts"]
    return {"verdicts": {key: told[key] | {"by": "ownSidecar" if intent in judged.own else "outside"} for intent, key in _VERDICT.items()}}


def _beside(judged: Judged) -> Json:
    """What is known beside the judgement; what there is not is left out."""
    ends = [{"what": what, "at": timestamps.to_text(at)} for what, at in judged.ends]
    found = {"evacuation": _evacuation_json(judged), "ownSidecar": _own_json(judged), "ends": ends, "unannounced": judged.unannounced}
    return {key: value for key, value in found.items() if value}


def _evacuation_json(judged: Judged) -> Json:
    record, deadline = judged.marks.record if judged.marks else None, judged.word.deadline if judged.word else None
    if record is None or record.state is None:
        return {}
    started = record.started_at
    times = {} if started is None else {"startedAt": timestamps.to_text(started), "seconds": int(judged.assessment.at - started)}
    return {"state": str(record.state), **times, **({} if deadline is None else {"deadline": timestamps.to_text(deadline)})}


def _own_json(judged: Judged) -> Json:
    word = judged.word
    if word is None:
        return {}
    said = {
        key: {"status": str(one.status), "reason": one.reason} | ({} if one.since is None else {"since": timestamps.to_text(one.since)})
        for intent, key in _VERDICT.items()
        for one in (word.said[intent],)
    }
    seen = {} if word.seen_at is None else {"observedAt": timestamps.to_text(word.seen_at)}
    return {**said, **seen, "stale": word.is_stale, **({"held": word.held} if word.held else {})}
