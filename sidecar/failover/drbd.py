"""What `drbdsetup` prints, read into what is known of each resource.

Three texts are read again and again: a dump of `events2`, which alone says whether this node may become Primary; `status`, which has to
agree with it in role, disk, quorum and connections; and `show` for the quorum option. What one lacks, or says otherwise, is unknown.
Beside them go single lines of `events2` as they happen: what such a line is about is unknown until all is read anew.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from sidecar.failover.evidence import MOST_AGE, Peer, Resource, Snapshot

EVENTS, STATUS, SHOW = "events", "status", "show"
READS: Final = (EVENTS, STATUS, SHOW)
CHANGE: Final = "change"
FAILED: Final = "failed"

MOST_RESOURCES: Final = 5000
_MOST_BROKEN: Final = 16  # objects of one text that cannot be read, before the rest is given up
_MOST_CHANGES: Final = 5000
_YES: Final = {"yes": True, "no": False}
_PRIMARY: Final = {"Primary": True, "Secondary": False}
_REASONS: Final = ("user", "no-data", "fencing", "quorum")
_DISKS: Final = frozenset(
    ("Diskless", "Attaching", "Detaching", "Failed", "Negotiating", "Inconsistent", "Outdated", "Consistent", "UpToDate")
)  # DUnknown is none that is known
_BY_HAND: Final = frozenset(("StandAlone", "Disconnecting"))
_NOT_CONNECTED: Final = _BY_HAND | frozenset(
    ("Unconnected", "Timeout", "BrokenPipe", "NetworkFailure", "ProtocolError", "TearDown", "Connecting")
)
_TELLING: Final = frozenset(("role", "suspended", "force-io-failures", "may_promote", "disk", "quorum", "connection", "peer-disk"))
_MUST_AGREE: Final = ("role", "disk ", "quorum ", "connection ", "peer-role ")
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
        if kind == CHANGE:
            return self._note(at, text)
        if kind == FAILED:
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
        if not name or len(self._changed) >= _MOST_CHANGES:
            self._changed.clear()  # too much has changed, or it is not known what: only what is read from now on counts
            self._reads[EVENTS] = _Read(at, {}, whole=False)
        self._changed[name[:256]] = at
        self._built = None
        return True

    def snapshot(self, now: float) -> Snapshot:
        fresh = {kind: read for kind, read in self._reads.items() if 0.0 <= now - read.at <= MOST_AGE}
        lacking = [f"{kind}: {self._failed.get(kind) or 'not read for too long'}" for kind in READS if kind not in fresh]
        if EVENTS not in fresh or STATUS not in fresh:
            return Snapshot(now, False, why="; ".join(lacking))
        events, status, show = fresh[EVENTS], fresh[STATUS], fresh.get(SHOW)
        if self._built is None or self._built[0] != (show is not None):
            self._built = (show is not None, *self._build(events, status, show))
        _, resources, disagreements = self._built
        why = "; ".join(lacking) or next((f"{kind}: it cannot be read whole" for kind, read in fresh.items() if not read.whole), "")
        why = why or next((f"show does not show {name}" for name in resources if show is None or show.said.get(name) is None), "")
        why = why or next((f"{one.name}: {one.unknown}" for one in resources.values() if one.unknown), "")
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
    volumes, peers = _objects_of(events | status)
    disks = [facts.get(f"disk {volume}", "") for volume in volumes]
    opened = [_YES.get(facts.get(f"open {volume}", "")) for volume in volumes]
    suspended = facts.get("suspended")
    reasons = frozenset(suspended.split(",")) - {"no"} if suspended is not None else None
    seen = {peer: _peer(peer, facts, volumes) for peer in peers}
    own = _all(_YES.get(facts.get(f"client {volume}", "")) for volume in volumes)
    # A disk that is meant to be elsewhere has no vote. Where that is not known it is counted: then more votes are wanted, and not fewer.
    clients = [_all(_YES.get(facts.get(f"peer-client {peer} {volume}", "")) for volume in volumes) for peer in peers]
    voters = sum(client is not True for client in (own, *clients))
    return Resource(
        name=name,
        at=at,
        primary=_PRIMARY.get(facts.get("role", "")),
        open=True if True in opened else _all(opened),
        suspended=reasons if reasons is not None and reasons <= {*_REASONS} else None,
        failing_io=_YES.get(facts.get("force-io-failures", "")),
        may_promote=_YES.get(events.get("may_promote", "")),
        has_quorum=_all(_YES.get(facts.get(f"quorum {volume}", "")) for volume in volumes),
        forbids_second=_forbids_second(show.get("quorum", "off"), voters) if show is not None else None,
        up_to_date=_all(disk == "UpToDate" if disk in _DISKS else None for disk in disks),
        diskless=bool(disks) and {*disks} == {"Diskless"},
        peers=MappingProxyType(seen),
    )


def _objects_of(facts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Volumes and peers that facts are about."""
    volumes, peers = dict[str, None](), dict[str, None]()
    for words in map(str.split, facts):
        if words[0] in ("connection", "peer-role", "peer-disk", "peer-client"):
            peers[words[1]] = None
            volumes |= dict.fromkeys(words[2:])
        else:
            volumes |= dict.fromkeys(words[1:])
    return [*volumes], [*peers]


def _peer(name: str, facts: Facts, volumes: Iterable[str]) -> Peer:
    state = facts.get(f"connection {name}", "")
    disks = [facts.get(f"peer-disk {name} {volume}", "") for volume in volumes]
    return Peer(
        name=name,
        connected=True if state == "Connected" else False if state in _NOT_CONNECTED else None,
        cut_by_hand=state in _BY_HAND,
        primary=_PRIMARY.get(facts.get(f"peer-role {name}", "")),
        up_to_date=_all(disk == "UpToDate" if disk in _DISKS else None for disk in disks),
        diskless=bool(disks) and {*disks} == {"Diskless"},
    )


def _all(values: Iterable[bool | None]) -> bool | None:
    """Of none at all it is not known."""
    found = [*values]
    return False if False in found else None if None in found or not found else True


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


_OF_EVENTS: Final = {
    "resource": ("role", "suspended", "force-io-failures", "may_promote"),
    "device": ("disk", "quorum", "open", "client"),
    "connection": ("connection", "role"),
    "peer-device": ("peer-disk", "peer-client"),
}


def _of_events(text: str) -> tuple[Mapping[str, Facts | None], bool]:
    """Nothing if it was cut off: what it has not shown would look as if it were not there. A dump ends with `exists -`."""
    found: dict[str, Facts | None] = {}
    ended, whole = False, True
    for line in text.splitlines():
        if line.startswith("exists path"):
            continue
        verb, about, fields = _parsed(line)
        keys, name = _OF_EVENTS.get(about), fields.get("name", "")
        if verb != "exists" or keys is None:
            ended = ended or (verb, about) == ("exists", "-")
            continue
        of = {"device": fields.get("volume"), "connection": fields.get("conn-name")}.get(about, "")
        if about == "peer-device":
            of = f"{fields.get('conn-name', '')} {fields.get('volume', '')}"
        if not name or of is None or len(found) >= MOST_RESOURCES:
            whole = False
            continue
        facts = found.setdefault(name, Facts())
        if facts is None:
            continue
        for key in keys:
            if (value := fields.get(key)) is not None:
                known_as = intern(f"{'peer-role' if about == 'connection' and key == 'role' else key} {of}".rstrip())
                if known_as in facts:
                    found[name] = None
                    break
                facts[known_as] = intern(value if key != "suspended" else ",".join(sorted(value.split(","))))
    return (found, whole) if ended else ({}, False)


def _of_json(text: str, kind: str) -> tuple[Mapping[str, Facts | None], bool]:
    """Object by object, because it is printed by hand: one that is malformed does not take the others along."""
    found: dict[str, Facts | None] = {}
    first = "name" if kind == STATUS else "resource"
    whole = text.lstrip()[:1] == "[" and text.rstrip()[-1:] == "]"
    number = 0
    for name, obj in _objects(text, first):
        number += 1
        whole = whole and obj is not None
        if name in found or obj is None:
            found[name] = None
        elif len(found) < MOST_RESOURCES:
            found[name] = _of_status(obj) if kind == STATUS else _of_show(obj)
    return found, whole and (number > 0 or "".join(text.split()) == "[]")


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
            name = obj[first]
            yield (name, obj) if isinstance(name, str) else ("", None)


def _of_status(obj: Mapping[str, Any]) -> Facts:
    facts = Facts()

    def note(key: str, value: object) -> None:
        if isinstance(value, bool | str):
            facts[intern(key)] = intern(value if isinstance(value, str) else "yes" if value else "no")

    reasons = {word: obj.get(f"suspended-{word}") for word in _REASONS}
    if None not in reasons.values() or obj.get("suspended") is False:
        note("suspended", ",".join(sorted(word for word in _REASONS if reasons[word] is True)) or "no")
    note("role", obj.get("role"))
    note("force-io-failures", obj.get("force-io-failures"))
    for device in _listed(obj, "devices"):
        for key in ("disk-state", "quorum", "open", "client"):
            note(f"{key.removesuffix('-state')} {device.get('volume')}", device.get(key))
    for link in _listed(obj, "connections"):
        peer = link.get("name")
        note(f"connection {peer}", link.get("connection-state"))
        note(f"peer-role {peer}", link.get("peer-role"))
        for device in _listed(link, "peer_devices"):
            for key in ("peer-disk-state", "peer-client"):
                note(f"{key.removesuffix('-state')} {peer} {device.get('volume')}", device.get(key))
    return facts


def _of_show(obj: Mapping[str, Any]) -> Facts:
    options = obj.get("options")
    quorum = options.get("quorum", "off") if isinstance(options, dict) else "off"
    return {"quorum": intern(str(quorum))}


def _listed(obj: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = obj.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
