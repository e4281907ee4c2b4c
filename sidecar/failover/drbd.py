"""What `drbdsetup` prints, read into what is known of each resource.

Three texts are read again and again: a dump of `events2`, which alone says whether this node may become Primary; `status`, which has to
agree with it in role, disk, quorum and connections; and `show` for the quorum option. What one lacks, or says otherwise, is unknown.
Beside them go single lines of `events2` as they happen: what such a line is about is unknown until all is read anew.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from sidecar.failover.evidence import MOST_AGE, Peer, Resource, Snapshot

READS: Final = (EVENTS := "events", STATUS := "status", SHOW := "show")
_MOST: Final = 5000  # resources, and changes that are remembered one by one
_MOST_BROKEN: Final = 16  # objects of one text that cannot be read, before the rest is given up
_YES: Final = {"yes": True, "no": False}
_PRIMARY: Final = {"Primary": True, "Secondary": False}
_REASONS: Final = ("fencing", "no-data", "quorum", "user")
# Of disks and connections, the words that are known. DUnknown is not among them.
_UP_TO_DATE: Final = {"UpToDate": True} | dict.fromkeys(
    ("Diskless", "Attaching", "Detaching", "Failed", "Negotiating", "Inconsistent", "Outdated", "Consistent"), False
)
_BY_HAND: Final = ("StandAlone", "Disconnecting")
_CONNECTED: Final = {"Connected": True} | dict.fromkeys(
    (*_BY_HAND, "Unconnected", "Timeout", "BrokenPipe", "NetworkFailure", "ProtocolError", "TearDown", "Connecting"), False
)
_MUST_AGREE: Final = ("role", "disk ", "quorum ", "connection ", "peer-role ")
_OF_PEERS: Final = ("connection", "peer-role", "peer-disk", "peer-client")
_TELLING: Final = frozenset(("role", "suspended", "force-io-failures", "may_promote", "disk", "quorum", "connection", "peer-disk"))
_OF_EVENTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {  # by object: what names it, and what is said of it
    "resource": ((), ("role", "suspended", "force-io-failures", "may_promote")),
    "device": (("volume",), ("disk", "quorum", "open", "client")),
    "connection": (("conn-name",), ("connection", "role")),
    "peer-device": (("conn-name", "volume"), ("peer-disk", "peer-client")),
}
_NAME: Final = re.compile(r'\s*"([^"\\]{1,256})"')

Facts = dict[str, str]
"""Of one resource by one text: `role`, `disk 0`, `connection n2`, `peer-disk n2 0` and so on, in the words of events2."""


@dataclass(frozen=True, slots=True)
class _Read:
    at: float  # when it was asked for
    said: Mapping[str, Facts | None]  # None: it cannot be read, or is there twice
    whole: bool


class Reading:
    """Fed with what the reader hands on, each with the time at which it was asked for; whoever wants to know asks for a snapshot."""

    def __init__(self) -> None:
        self._reads: dict[str, _Read] = {}
        self._changed: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._built: tuple[bool, dict[str, Resource], int] | None = None

    def feed(self, kind: str, at: float, text: str) -> bool:
        """Whether something is known that was not. A kind that is not known says nothing."""
        if kind == "change":
            return self._note(at, text)
        if kind == "failed":
            which, _, why = text.partition(" ")
            if which in READS:
                self._failed[which] = why[:256]
            return False
        if kind not in READS or (kind in self._reads and at < self._reads[kind].at):
            return False
        said, whole = _of_events(text) if kind == EVENTS else _of_json(text, kind)
        if not said and not whole:
            self._failed[kind] = "it was cut off"
            return False
        self._failed.pop(kind, None)
        before = self._reads.get(kind)
        self._reads[kind] = _Read(at, said, whole)
        oldest = min(self._reads[each].at if each in self._reads else 0.0 for each in (EVENTS, STATUS))
        self._changed = {name: when for name, when in self._changed.items() if when > oldest}
        self._built = None
        return before is None or before.said != said

    def _note(self, at: float, line: str) -> bool:
        verb, about, fields = _parsed(line)
        name = fields.get("name", "")
        if verb == "exists" or about in ("path", "helper") or not (verb != "change" or _TELLING.intersection(fields)):
            return False
        if not name or len(self._changed) >= _MOST:
            self._changed.clear()  # too much has changed, or it is not known what: only what is read from now on counts
            self._reads[EVENTS] = _Read(at, {}, whole=False)
        self._changed[name[:256]] = at
        self._built = None
        return True

    def snapshot(self, now: float) -> Snapshot:
        fresh = {kind: read for kind, read in self._reads.items() if 0.0 <= now - read.at <= MOST_AGE}
        why = "; ".join(f"{kind}: {self._failed.get(kind) or 'not read for too long'}" for kind in READS if kind not in fresh)
        if EVENTS not in fresh or STATUS not in fresh:
            return Snapshot(min((read.at for read in self._reads.values()), default=0.0), False, why=why)
        events, status, show = fresh[EVENTS], fresh[STATUS], fresh.get(SHOW)
        if self._built is None or self._built[0] != (show is not None):
            self._built = (show is not None, *self._build(events, status, show))
        _, resources, disagreements = self._built
        faults = (
            *(f"{kind}: it cannot be read whole" for kind, read in fresh.items() if not read.whole),
            *(f"show does not show {name}" for name in resources if show is not None and show.said.get(name) is None),
            *(f"{one.name}: {one.unknown}" for one in resources.values() if one.unknown),
        )
        why = why or next(iter(faults), "")
        return Snapshot(min(events.at, status.at), not why, MappingProxyType(resources), disagreements, why)

    def _build(self, events: _Read, status: _Read, show: _Read | None) -> tuple[dict[str, Resource], int]:
        at, found, disagreements = min(events.at, status.at), dict[str, Resource](), 0
        for name in dict.fromkeys((*events.said, *status.said)):
            one, other = events.said.get(name), status.said.get(name)
            if self._changed.get(name, at) > at:
                unknown, contradicts = "it has changed since it was read", False
            elif one is None or other is None:
                kind, read = (EVENTS, events) if one is None else (STATUS, status)
                contradicts = name not in read.said and read.whole
                unknown = f"{kind} does not show it{'' if contradicts else ' in a form that can be read'}"
            elif unknown := _difference(one, other):
                contradicts = True
            else:
                found[name] = _resource(name, at, one, other, show.said.get(name) if show is not None else None)
                continue
            found[name] = Resource(name, at, suspended=None, unknown=unknown)
            disagreements += contradicts
        return found, disagreements


def _difference(events: Facts, status: Facts) -> str:
    """In what they contradict each other; empty: in nothing. What one of them does not say is no contradiction, and unknown later."""
    for key, value in events.items():
        if status.get(key, value) != value and key.startswith(_MUST_AGREE):
            return f"events2 and status disagree on {key.strip()}: {value[:32]} and {status[key][:32]}"
    return ""


def _resource(name: str, at: float, events: Facts, status: Facts, show: Facts | None) -> Resource:
    facts = {key: value for key, value in events.items() if status.get(key) == value}
    volumes, peers = dict[str, None](), dict[str, None]()
    for word, *of in map(str.split, events | status):
        if word in _OF_PEERS:
            peers[of.pop(0)] = None
        volumes |= dict.fromkeys(of)

    def each(word: str, known: Mapping[str, bool]) -> list[bool | None]:
        return [known.get(facts.get(f"{word} {volume}", "")) for volume in volumes]

    def peer(name: str) -> Peer:
        state = facts.get(f"connection {name}", "")
        return Peer(
            name=name,
            connected=_CONNECTED.get(state),
            cut_by_hand=state in _BY_HAND,
            up_to_date=_all(each(f"peer-disk {name}", _UP_TO_DATE)),
        )

    # Who is meant to have no disk has no vote. Where that is not known, it is counted: then more votes are wanted, and not fewer.
    voters = sum(_all(each(word, _YES)) is not True for word in ("client", *(f"peer-client {peer}" for peer in peers)))
    reasons = frozenset(facts.get("suspended", "not known").split(",")) - {"no"}
    primary, failing = _PRIMARY.get(facts.get("role", "")), _YES.get(facts.get("force-io-failures", ""))
    opened = each("open", _YES)
    if not any(key.startswith("open ") for key in events | status):
        opened = [primary, failing]  # older drbd-utils do not print it; what is open for writing is one of both
    return Resource(
        name=name,
        at=at,
        primary=primary,
        open=True if True in opened else None if None in opened or not opened else False,
        suspended=reasons if reasons <= {*_REASONS} else None,
        failing_io=failing,
        may_promote=_YES.get(events.get("may_promote", "")),
        has_quorum=_all(each("quorum", _YES)),
        forbids_second=_forbids_second(show["quorum"], voters) if show is not None else None,
        up_to_date=_all(each("disk", _UP_TO_DATE)),
        peers=MappingProxyType({name: peer(name) for name in peers}),
    )


def _all(values: Sequence[bool | None]) -> bool | None:
    """Of none at all it is not known."""
    return False if False in values else None if None in values or not values else True


def _forbids_second(quorum: str, voters: int) -> bool | None:
    """Two halves never both have more than half of the votes. What is not said is the default: off."""
    if quorum.isascii() and quorum.isdigit() and len(quorum) < 4:
        return 2 * int(quorum) > voters
    return {"majority": True, "all": True, "off": False}.get(quorum)


# --- the texts ----------------------------------------------------------------------------------------------------------------


def _parsed(line: str) -> tuple[str, str, Facts]:
    """Verb, object and fields of a line of events2. What is there twice is not known."""
    words = line.split()
    fields = Facts()
    for word in words[2:]:
        key, colon, value = word.partition(":")
        if colon:
            fields[key] = "" if key in fields else value
    return words[0] if words else "", words[1] if len(words) > 1 else "", fields


def _of_events(text: str) -> tuple[Mapping[str, Facts | None], bool]:
    """Nothing if it was cut off: what it has not shown would look as if it were not there. A dump ends with `exists -`."""
    found: dict[str, Facts | None] = {}
    ended, whole = False, True
    for line in text.splitlines():
        verb, about, fields = _parsed(line)
        ended = ended or (verb, about) == ("exists", "-")
        if verb != "exists" or about not in _OF_EVENTS:
            continue
        named_by, keys = _OF_EVENTS[about]
        name, of = fields.get("name", ""), [fields.get(key, "") for key in named_by]
        if not name or not all(of) or len(found) >= _MOST:
            whole = False
            continue
        facts = found.setdefault(name, Facts())
        for key in keys:
            if facts is not None and (value := fields.get(key)) is not None:
                known_as = intern(" ".join(("peer-role" if (about, key) == ("connection", "role") else key, *of)))
                if known_as in facts:
                    facts = found[name] = None  # it is there twice
                else:
                    facts[known_as] = intern(",".join(sorted(value.split(","))) if key == "suspended" else value)
    return (found, whole) if ended else ({}, False)


def _of_json(text: str, kind: str) -> tuple[Mapping[str, Facts | None], bool]:
    """Object by object, because it is printed by hand: one that is malformed does not take the others along."""
    found: dict[str, Facts | None] = {}
    whole, first = "".join(text.split()) == "[]", "name" if kind == STATUS else "resource"
    for number, (name, obj) in enumerate(_objects(text, first)):
        whole = (whole or not number) and obj is not None and number < _MOST
        if number < _MOST:
            try:
                found[name] = None if obj is None or name in found else _of_status(obj) if kind == STATUS else _of_show(obj)
            except (AttributeError, KeyError, TypeError, ValueError):
                found[name] = None
    return found, whole and text.lstrip()[:1] == "[" and text.rstrip()[-1:] == "]"


def _objects(text: str, first: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    begins, decoder, at, broken = re.compile(rf'\{{\s*"{first}"\s*:'), json.JSONDecoder(), 0, 0
    while (begun := begins.search(text, at)) and broken < _MOST_BROKEN:
        try:
            obj, at = decoder.raw_decode(text, begun.start())
        except (ValueError, RecursionError):
            at, broken = begun.end(), broken + 1
            named = _NAME.match(text, at)
            yield (named[1] if named else ""), None
        else:
            yield str(obj[first]), obj


def _of_status(obj: Mapping[str, Any]) -> Facts:
    """Raises what odd shapes raise: then it cannot be read."""
    facts = Facts()

    def note(said: Mapping[str, Any], keys: Mapping[str, str], *of: object) -> None:
        for key, word in keys.items():
            if isinstance(value := said.get(key), bool | str):
                facts[intern(" ".join((word, *map(_word, of))))] = intern(value if isinstance(value, str) else "yes" if value else "no")

    note(obj, {"role": "role", "force-io-failures": "force-io-failures"})
    reasons = [word for word in _REASONS if obj.get(f"suspended-{word}") is True]
    if all(isinstance(obj.get(f"suspended-{word}"), bool) for word in _REASONS) or obj.get("suspended") is False:
        facts["suspended"] = intern(",".join(reasons) or "no")
    for device in obj["devices"]:
        note(device, {"disk-state": "disk", "quorum": "quorum", "open": "open", "client": "client"}, device["volume"])
    for link in obj["connections"]:
        note(link, {"connection-state": "connection", "peer-role": "peer-role"}, link["name"])
        for device in link["peer_devices"]:
            note(device, {"peer-disk-state": "peer-disk", "peer-client": "peer-client"}, link["name"], device["volume"])
    return facts


def _word(value: object) -> str:
    """Of a peer's name or a volume's number: what events2 would print as one."""
    if len(words := str(value).split()) != 1:
        raise ValueError(value)
    return words[0]


def _of_show(obj: Mapping[str, Any]) -> Facts:
    return {"quorum": intern(str(obj.get("options", {}).get("quorum", "off")))}
