"""The result of one case as a tree, and the differences between the trees of two programs.

Uids, versions and times are replaced by what they stand for. How often a failing call was repeated is left out, as it depends on timing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hack.parities.cases import STRICT, Case, Json
from hack.parities.stage import Play, Seen, is_of_the_program, name_of, source_of

ABSENT = "(absent)"
CREATED, CHANGED, DELETED = "after creation", "after a change", "after deletion"
# Metadata that the server writes and not a program.
_SERVERS = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
_TIMES = ("deletionTimestamp", "lastPhaseTransitionTime")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_IDENTITY = re.compile(r"\d{13}-\d{1,5}-(?=\w+\.parity)")
_COMPONENT = re.compile(rf"_[^_]+_{_UUID}")
_SHORT_UID = 14
_ACTIVE = ("CreateVolume", "DeleteVolume")


@dataclass(frozen=True, slots=True)
class Gap:
    """One field in which the two differ."""

    case: str
    moment: str
    path: str
    peer: Any
    ours: Any


@dataclass(frozen=True, slots=True)
class Pair:
    """One case at one moment, with what each program made of it."""

    case: Case
    moment: str
    peer: Json
    ours: Json

    def gaps(self) -> list[Gap]:
        return [Gap(self.case.id, self.moment, path, peer, ours) for path, peer, ours in apart(self.peer, self.ours)]


def pairs(cases: Iterable[Case], *, peer: Play, ours: Play) -> Iterator[Pair]:
    for case in cases:
        yield Pair(case, CREATED, created(peer, case), created(ours, case))
        if case.between:
            yield Pair(case, CHANGED, changed(peer, case), changed(ours, case))
        yield Pair(case, DELETED, deleted(peer, case), deleted(ours, case))


def created(play: Play, case: Case) -> Json:
    came = {"came of it": case.id not in play.unsettled}
    calls = _calls(play.created, play, case, ("CreateVolume", "GetCapacity"))
    objects = _objects(play.created, case, with_claim=not case.leaves_early)
    return _plain(play, case, {**came, **objects, "events": _events(play.created, play, case), "calls": calls})


def changed(play: Play, case: Case) -> Json:
    return _plain(play, case, _since(play.changed, play, case))


def deleted(play: Play, case: Case) -> Json:
    return _plain(play, case, {**_since(play.deleted, play, case), "left in the driver": _left(play, case)})


def _since(seen: Seen, play: Play, case: Case) -> Json:
    events = {key: told for key, told in _events(seen, play, case).items() if key.startswith("volume ")}
    return {**_objects(seen, case, with_claim=True), "events": events, "calls": _calls(seen, play, case, ("DeleteVolume",))}


def apart(peer: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The differences of two trees. A subtree that only one of them has is one difference."""
    if type(peer) is not type(ours) or not isinstance(peer, Mapping | list):
        if peer != ours:
            yield path, peer, ours
        return
    one, other = _children(peer), _children(ours)
    for key in sorted(one.keys() | other.keys()):
        yield from apart(one.get(key, ABSENT), other.get(key, ABSENT), f"{path}/{key}")


def _children(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return {str(number): item for number, item in enumerate(value)} if isinstance(value, list) else {}


# --- what belongs to the case ---------------------------------------------------------------------------------------


def _names(case: Case) -> dict[str, str]:
    return {"claim": case.id, "source": source_of(case)}


def _objects(seen: Seen, case: Case, *, with_claim: bool) -> Json:
    claims = {item["metadata"]["name"]: item for item in seen.claims}
    volumes: dict[str, Json] = {}
    for item in seen.volumes:
        volumes.setdefault(item["spec"].get("claimRef", {}).get("name", ""), item)
    snapshot = next((item for item in seen.snapshots if item["metadata"]["name"] == source_of(case)), None)
    return {
        "claims": {role: claims[name] for role, name in _names(case).items() if name in claims and (with_claim or role == "source")},
        "volumes": {role: volumes[name] for role, name in _names(case).items() if name in volumes and (with_claim or role == "source")},
        "snapshot": snapshot or {},
    }


def _events(seen: Seen, play: Play, case: Case) -> Json:
    """By object, type and reason: all that was said, and by whom."""
    own = {name: role for role, name in _names(case).items()}
    own |= {f"{_prefix(case)}-{token}": "volume" for token in _tokens(play, case)}
    told: dict[str, dict[str, set[str]]] = {}
    for event in seen.events:
        about = event["involvedObject"]
        if name_of(event) not in own or not is_of_the_program(event):
            continue
        group = told.setdefault(f"{own[name_of(event)]} {event['type']} {event['reason']}", {})
        fields = {
            "message": event["message"],
            "component": event["source"].get("component", ""),
            "host": event["source"].get("host", ""),
            "reporting": event.get("reportingComponent", ""),
            "instance": event.get("reportingInstance", ""),
            "about": json.dumps({key: value for key, value in about.items() if key != "resourceVersion"}, sort_keys=True),
            "about a version": str("resourceVersion" in about),
            "namespace": event["metadata"]["namespace"],
        }
        for key, value in fields.items():
            group.setdefault(key, set()).add(_COMPONENT.sub("_(host)_(uuid)", value))
    return {key: {field: sorted(words) for field, words in group.items()} for key, group in told.items()}


def _calls(seen: Seen, play: Play, case: Case, methods: tuple[str, ...]) -> Json:
    """By method, each different request once."""
    found: dict[str, set[str]] = {}
    for call in seen.calls[case.setting]:
        if call["method"] in methods and _concerns(call, play, case):
            found.setdefault(call["method"], set()).add(json.dumps(call["request"], sort_keys=True))
    # Sorted by what they say once uids are replaced, or the order would be that of the uids.
    return {method: sorted((_plain(play, case, json.loads(text)) for text in texts), key=_text) for method, texts in found.items()}


def _concerns(call: Json, play: Play, case: Case) -> bool:
    request = call["request"]
    if call["method"] in _ACTIVE:
        about = f"{request.get('name', '')} {request.get('volume_id', '')}"
        return any(token in about for token in _tokens(play, case))
    return bool(request.get("parameters", {}).get("case") == case.id)


def _left(play: Play, case: Case) -> list[str]:
    """Volumes that were made and whose deletion has never succeeded."""
    made: set[str] = set()
    for call in play.deleted.calls[case.setting]:
        if call["code"] != "OK" or not _concerns(call, play, case):
            continue
        if call["method"] == "CreateVolume":
            made.add(f"volume-{call['request']['name']}")
        elif call["method"] == "DeleteVolume":
            made.discard(call["request"]["volume_id"])
    return sorted(made)


# --- without what must differ ---------------------------------------------------------------------------------------


def _tokens(play: Play, case: Case) -> dict[str, str]:
    """What each uid, and each shortened one, stands for."""
    found: dict[str, str] = {}
    for key in ("claim", "source"):
        uid = play.uids.get(f"claim {_names(case)[key]}")
        if uid is not None:
            found |= {uid: f"(uid of {key})", uid.replace("-", "")[:_SHORT_UID]: f"(short uid of {key})"}
    volumes = {f"{_prefix(case)}-{token}" for token in found}
    for item in play.created.volumes:
        if item["metadata"]["name"] in volumes:
            found[item["metadata"]["uid"]] = "(uid of volume)"
    snapshot = play.uids.get(f"snapshot {source_of(case)}")
    return found | ({snapshot: "(uid of snapshot)"} if snapshot else {})


def _prefix(case: Case) -> str:
    return "vol" if case.setting == STRICT else "pvc"


def _plain(play: Play, case: Case, tree: Json) -> Json:
    text = json.dumps(_pruned(tree), sort_keys=True)
    for token, meaning in _tokens(play, case).items():
        text = text.replace(token, meaning)
    plain: Json = json.loads(_IDENTITY.sub("(born)-", text))
    return plain


def _pruned(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        dropped = _SERVERS if key == "metadata" else ()
        return {name: _pruned(item, name) for name, item in value.items() if name not in dropped}
    if isinstance(value, list) and key == "matchExpressions":
        # As they stand, and in what order: the order means nothing to Kubernetes.
        return {"order": [item["key"] for item in value], "terms": sorted(value, key=_text)}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    if key == "resourceVersion":
        return "(a version)" if str(value).isdigit() else value
    return "(a time)" if key in _TIMES else value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
