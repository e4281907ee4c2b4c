"""Reads a stored report, and carries on what has to last. It is read with distrust: anybody may have edited it, and what cannot be
read counts as not there."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sidecar.drain.judgement.acknowledged import Acknowledgement, remember, void_now
from sidecar.drain.judgement.assessment import Assessment, Hidden
from sidecar.drain.vocabulary import Policy, Reason
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Volume

UNWATCHED: Final = 420.0
"""Seconds without a sign of life, of which one is due every five minutes. Who used the volumes meanwhile nobody has seen."""
LONGEST: Final = 1024
"""Characters of a text in a report or condition."""
MOST_HELD: Final = 500
"""Pods that must not be evicted: more than a node may have, with names as long as they may be 160 KB."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of a drain."""

    pods: tuple[str, ...] = ()
    """`namespace/name` of those that must not be evicted."""
    because: str = ""
    """Why the drain is held, and what to do; empty: it is not."""
    purpose: str = ""
    """What the drain is for, and who says so; empty: nobody drains the node."""

    def as_json(self) -> Json:
        listed = list(self.pods[:MOST_HELD])
        return {"held": listed, "heldCount": len(self.pods), "heldBecause": shortened(self.because), "drainFor": self.purpose}


NOTHING_HELD: Final = Held()


def held_of(status: Json) -> Held:
    """As it is stored."""
    return Held(texts(status, "held"), text(status, "heldBecause"), text(status, "drainFor"))


def status_of(report: Mapping[str, Any] | None) -> Json:
    """Empty if there is none."""
    return mapping(report or {}, "status")


def mapping(of: Mapping[str, Any], key: str) -> Json:
    value = of.get(key)
    return dict(value) if isinstance(value, Mapping) else {}


def entries(of: Mapping[str, Any], key: str) -> tuple[Json, ...]:
    value = of.get(key)
    return tuple(dict(item) for item in value if isinstance(item, Mapping)) if isinstance(value, list | tuple) else ()


def texts(of: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = of.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def text(of: Mapping[str, Any], key: str) -> str:
    value = of.get(key)
    return value if isinstance(value, str) else ""


def of_this_node(status: Json, node_uid: str) -> Json:
    """Empty for a report on a former machine of this name: nothing of it is carried on."""
    return status if text(status, "nodeUID") == node_uid else {}


def seconds(of: Mapping[str, Any], key: str) -> float | None:
    return timestamps.to_seconds(text(of, key))


def blocking_volumes(report: Json | None, *, node_uid: str) -> frozenset[str]:
    """Names of PersistentVolumes that an earlier judgement found here, and that nobody had given up."""
    blockers = entries(of_this_node(status_of(report), node_uid), "blockers")
    return frozenset(text(entry, "volume") for entry in blockers if text(entry, "kind") in (names.CLAIM, names.VOLUME)) - {""}


def hidden(report: Mapping[str, Any] | None, *, node_uid: str) -> tuple[Hidden, ...] | None:
    """Volumes of which the node's own sidecar alone knew that they are there; None: it does not say, as in an earlier release."""
    status = of_this_node(status_of(report), node_uid)
    if not isinstance(status.get("hidden"), list):
        return None
    found = (Hidden(text(entry, "volume"), listed=entry.get("listed") is True) for entry in entries(status, "hidden"))
    return tuple(item for item in found if item.volume)


def makes_anew(report: Json | None, *, node_uid: str) -> bool:
    """Whether the sidecar that wrote it makes replicas anew, as far as it has blockers that show it: others have other reasons for them."""
    blockers = entries(of_this_node(status_of(report), node_uid), "blockers")
    return any(text(entry, "policy") == Policy.REPROVISION and _reason(entry) in _CARRIED_OUT for entry in blockers)


_CARRIED_OUT: Final = (Reason.REPROVISION_PENDING, Reason.LAST_COPY)


def void_acknowledgements(report: Json | None, volumes: Iterable[Volume], *, node_uid: str, now: float | None = None) -> frozenset[str]:
    """For `Snapshot.void_acknowledgements`, from the stored report alone: which of `volumes` were used since they were acknowledged."""
    status = of_this_node(status_of(report), node_uid)
    seen = seconds(status, "observedAt")
    watched = now is None or (seen is not None and now - seen <= UNWATCHED)
    known = _acknowledgements(status)
    return void_now((replace(item, void=item.void or (not watched and item.may_be_used)) for item in known), volumes)


def remembered(report: Json | None, *, node_uid: str) -> tuple[Acknowledgement, ...]:
    """The acknowledgements that earlier judgements have found."""
    return tuple(_acknowledgements(of_this_node(status_of(report), node_uid)))


def pods_seen(report: Json | None, *, node_uid: str) -> str:
    """The resourceVersion up to which those heed what pods of this node did; empty if that is not known."""
    return text(of_this_node(status_of(report), node_uid), "podsSeen")


def has_memory(status: Json) -> bool:
    """Whether it has room for acknowledgements; a report of an earlier release, or of its type, has none."""
    return "acknowledgements" in status


def acknowledgements(before: Json, assessment: Assessment) -> list[Json]:
    """What the report says of them, so that nobody forgets. `before` is the status that is stored."""
    known = _acknowledgements(of_this_node(before, assessment.node_uid))
    return [asdict(item) for item in remember(known, assessment.acknowledged, complete=assessment.complete)]


def _acknowledgements(status: Json) -> Iterable[Acknowledgement]:
    for entry in entries(status, "acknowledgements"):
        # Whatever is not plainly false counts against it: a report that was edited must not make data dispensable.
        void, rested = entry.get("void") is not False, entry.get("rested") is not False
        released = entry.get("released") is True
        yield Acknowledgement(text(entry, "uid"), text(entry, "digest"), text(entry, "claim"), void, rested, released)


def dated(said: Json, before: Json, *, at: float) -> Json:
    """A verdict with the time since when it has its status: the noted one as long as the status stays, else `at`."""
    noted = seconds(before, "lastTransitionTime") if text(before, "status") == said["status"] else None
    since = at if noted is None or noted > at else noted
    return {**said, "message": shortened(said["message"]), "lastTransitionTime": timestamps.to_text(since)}


def shortened(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"


def _reason(entry: Json) -> Reason | None:
    try:
        return Reason(text(entry, "reason"))
    except ValueError:
        return None
