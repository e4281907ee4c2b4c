"""One node and driver, as a row of `explain nodes` and as plain JSON. Words and figures are those of the report."""

from collections.abc import Iterable, Sequence

from sidecar.commands.explain.judged import Judged
from sidecar.drain.judgement.assessment import Assessment, Blocker
from sidecar.drain.publish import as_json as report
from sidecar.drain.publish.as_json import bytes_in_the_way, held_bytes, named, verdict_json
from sidecar.drain.publish.as_text import age, size
from sidecar.drain.publish.own_word import OwnWord
from sidecar.drain.vocabulary import Intent
from sidecar.drain.wording import announcing, first_few
from sidecar.model import timestamps
from sidecar.model.objects import Json

NARROW = ("NODE", "DRIVER", "DRAIN", "RETIRE", "BLOCKERS", "REASON", "BYTES", "EVACUATION", "ITS SIDECAR SAYS")
_SHOWN = 20
WIDE = (*NARROW, "FIRST BLOCKER", "UNTIL")


# --- for people -------------------------------------------------------------------------------------------------------


def row(judged: Judged, intent: Intent | None, *, wide: bool) -> tuple[str, ...]:
    """As many columns as the heads. `intent`: what blocks that alone."""
    one, blocking = judged.assessment, _blocking(judged.assessment, intent)
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
        "; ".join(_own(judged.word, one.at, tuple(Intent))),
    )
    if not wide:
        return narrow
    first = f"{named(blocking[0])}: {blocking[0].message}" if blocking else one.verdict(intent or Intent.RETIRE).message
    return (*narrow, first, "; ".join(map(str, judged.ends)))


def about_own_word(judged: Judged, intent: Intent | None) -> list[str]:
    """Lines for `explain node`; none if the node's own sidecar says nothing."""
    said = tuple(_own(judged.word, judged.assessment.at, (intent,) if intent else tuple(Intent)))
    lines = [f"its own sidecar says: {'; '.join(said)}"] if said else []
    replicas = _of_replicas(judged.word, judged.assessment.at) if intent is not Intent.REBOOT else ()
    lines += [f"its own sidecar says: {line}" for line in _of_drains(judged.word, judged.assessment.at)] or _unannounced(judged)
    return [*lines, *(f"{end}" for end in judged.ends), *(f"its own sidecar says: {note}" for note in replicas)]


def _of_drains(word: OwnWord | None, now: float) -> Iterable[str]:
    """Gate, announcement and who holds, and what passes by itself."""
    if word is None or word.is_stale(now):
        return
    if word.gate:
        yield word.gate
    if word.held.because:
        yield word.held.because
    elif word.held.purpose:
        yield f"a drain is let go ({word.held.purpose})"
    if word.held.pods:
        yield f"must not be evicted: {first_few(word.held.pods, _SHOWN)}"
    yield from word.lately


def _unannounced(judged: Judged) -> list[str]:
    """Where no sidecar says it."""
    signals = judged.signals
    if signals is None or not signals.draining or signals.intent is not None:
        return []
    return [f"nobody announced what the drain of this node is for: run {announcing(signals.node)}"]


def _of_replicas(word: OwnWord | None, now: float) -> Sequence[str]:
    return word.replicas if word and not word.is_stale(now) else ()


def _blocking(assessment: Assessment, intent: Intent | None) -> Sequence[Blocker]:
    return [blocker for blocker in assessment.blockers if intent is None or intent in blocker.blocks]


def _reason(judged: Judged, blocking: Sequence[Blocker], intent: Intent | None) -> str:
    """What withholds a True: the first blocker, or what is not known; and whose word that is, where it is that of its own sidecar."""
    if blocking:
        return str(blocking[0].reason)
    asked = intent or Intent.RETIRE
    return f"{judged.assessment.verdict(asked).reason}{' (its sidecar)' if asked in judged.own else ''}"


def _evacuation(judged: Judged) -> str:
    signals = judged.signals
    if signals is None or signals.state is None:
        return ""
    return str(signals.state) + (f" for {age(judged.assessment.at - signals.started_at)}" if signals.started_at is not None else "")


def _own(word: OwnWord | None, now: float, asked: Sequence[Intent]) -> Iterable[str]:
    if word is None:
        return
    for intent in asked:
        said = word.verdict(intent)
        since = f" for {age(now - said.since)}" if said.since is not None else ""
        yield f"{_VERDICT[intent]} {said.status}{since}"
    if word.is_stale(now):
        ended = word.valid_until is not None and word.valid_until <= now
        yield f"stale{f' for {age(now - word.valid_until)}' if ended and word.valid_until is not None else ''}, so it counts as Unknown"


_VERDICT = {Intent.REBOOT: "drain", Intent.RETIRE: "retire"}


# --- for programs -----------------------------------------------------------------------------------------------------


def as_json(judged: Judged) -> Json:
    """All of it, for `explain node`."""
    return report.as_json(judged.assessment) | _verdicts(judged) | _beside(judged)


def summary(judged: Judged, intent: Intent | None) -> Json:
    """One row."""
    one, blocking = judged.assessment, _blocking(judged.assessment, intent)
    first = {"object": named(blocking[0]), "reason": str(blocking[0].reason), "message": blocking[0].message} if blocking else None
    return {
        "node": one.node,
        "driver": one.driver,
        **_verdicts(judged),
        "blockers": len(blocking),
        **({"firstBlocker": first} if first else {}),
        "bytes": {"total": held_bytes(one), "inTheWay": bytes_in_the_way(one, intent or Intent.RETIRE)},
        **_beside(judged),
    }


def _verdicts(judged: Judged) -> Json:
    """Those that count, and whose word each is."""
    by = {intent: "ownSidecar" if intent in judged.own else "outside" for intent in Intent}
    return {"verdicts": {_VERDICT[intent]: verdict_json(judged.assessment.verdict(intent)) | {"by": by[intent]} for intent in Intent}}


def _beside(judged: Judged) -> Json:
    """What is known beside the judgement; what there is not is left out."""
    found = {"evacuation": _evacuation_json(judged), "ownSidecar": _own_json(judged), "ends": [end.as_json() for end in judged.ends]}
    return {key: value for key, value in found.items() if value}


def _evacuation_json(judged: Judged) -> Json:
    signals = judged.signals
    if signals is None or signals.state is None:
        return {}
    started = signals.started_at
    times = {} if started is None else {"startedAt": timestamps.to_text(started), "seconds": int(judged.assessment.at - started)}
    deadline = judged.word.deadline if judged.word else None
    return {"state": str(signals.state), **times, **({} if deadline is None else {"deadline": timestamps.to_text(deadline)})}


def _own_json(judged: Judged) -> Json:
    word, now = judged.word, judged.assessment.at
    if word is None:
        return {}
    times = {"observedAt": word.observed_at, "validUntil": word.valid_until}
    return {
        **{_VERDICT[intent]: _said_json(word, intent) for intent in Intent},
        **{key: timestamps.to_text(at) for key, at in times.items() if at is not None},
        "stale": word.is_stale(now),
        **({"held": held} if (held := _held_json(word, now)) else {}),
        **({"replicas": list(said)} if (said := _of_replicas(word, now)) else {}),
    }


def _held_json(word: OwnWord, now: float) -> Json:
    if word.is_stale(now):
        return {}
    told = {"gate": word.gate, "drainFor": word.held.purpose, "because": word.held.because}
    lists = {"pods": list(word.held.pods), "stillUsed": list(word.lately)}
    return {key: value for key, value in {**told, **lists}.items() if value}


def _said_json(word: OwnWord, intent: Intent) -> Json:
    said = word.verdict(intent)
    since = {} if said.since is None else {"since": timestamps.to_text(said.since)}
    return {"status": str(said.status), "reason": said.reason, **since}
