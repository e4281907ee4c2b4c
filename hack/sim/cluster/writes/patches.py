"""The three patches, as functions of two values: RFC 6902, RFC 7386, and strategic merge as far as our kinds need it."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from hack.sim.cluster.refusals import Refused, bad_request, rejected
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model.objects import Json

APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCH_TYPES: Final = frozenset({JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH})
MOST_OPERATIONS: Final = 10_000

# Lists that a strategic merge joins, by the key that tells entries apart; all others it replaces. The key None marks a set of words.
MERGED_LISTS: Final[Mapping[str, str | None]] = {
    "finalizers": None, "ownerReferences": "uid", "conditions": "type", "addresses": "type", "containers": "name",
    "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name",
    "drivers": "name", "secrets": "name", "topologySpreadConstraints": "topologyKey",
}  # fmt: skip
_DELETE_WORDS: Final = "$deleteFromPrimitiveList/"


def patched(old: Json, patch: Any, content_type: str) -> Json:
    """A new object; `old` stays as it is, and may share parts with the new one."""
    match content_type:
        case t if t == JSON_PATCH:
            return _json_patched(old, patch)
        case t if t == MERGE_PATCH:
            return dict(merged(old, _mapping(patch, "error decoding patch: ")))
        case t if t in (STRATEGIC_MERGE_PATCH, APPLY_PATCH):
            return strategically_merged(old, _mapping(patch, ""))
    raise unknown_patch_type()


def unknown_patch_type() -> Refused:
    return Refused(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def strategically_merged(old: Any, patch: Mapping[str, Any]) -> Json:
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result: Json = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if key.startswith(_DELETE_WORDS):
            name = key.removeprefix(_DELETE_WORDS)
            result[name] = [word for word in result.get(name) or () if word not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = strategically_merged(result.get(key), value)
            if value.get("$patch") == "delete":
                del result[key]
        elif isinstance(value, list) and key in MERGED_LISTS and isinstance(result.get(key), list):
            result[key] = _joined(result[key], value, MERGED_LISTS[key])
        elif not key.startswith("$"):
            result[key] = _undirected(value)
    return result


def _joined(old: list[Any], new: list[Any], key: str | None) -> list[Any]:
    if key is None:
        return old + [word for word in new if word not in old]
    if any(isinstance(item, Mapping) and item.get("$patch") == "replace" for item in new):
        return list(_undirected(new))
    by_key = {item.get(key): item for item in old}
    for item in new:
        if not isinstance(item, Mapping) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        if item.get("$patch") == "delete":
            by_key.pop(item[key], None)
        else:
            by_key[item[key]] = strategically_merged(by_key.get(item[key]), item)
    return list(by_key.values())


def _undirected(value: Any) -> Any:
    """Without the directives that only make sense where something was before."""
    return [item for item in value if not (isinstance(item, Mapping) and "$patch" in item)] if isinstance(value, list) else value


def _mapping(patch: Any, prefix: str) -> Mapping[str, Any]:
    if not isinstance(patch, Mapping):
        kind = "array" if isinstance(patch, list) else type(patch).__name__
        raise bad_request(f"{prefix}json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
    return patch


def _json_patched(old: Json, patch: Any) -> Json:
    if not isinstance(patch, list) or not all(isinstance(step, Mapping) for step in patch):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp")
    if len(patch) > MOST_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(patch)}"
        raise Refused(413, "RequestEntityTooLarge", message)
    whole = {"": copy.deepcopy(old)}  # so that the document itself has a parent, too
    try:
        for step in patch:
            _take_step(whole, step)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        raise rejected() from None
    result = whole[""]
    if not isinstance(result, dict):
        raise rejected()
    return result


def _take_step(whole: Json, step: Mapping[str, Any]) -> None:
    path = _pointer(step["path"])
    match step["op"]:
        case "add":
            _add(whole, path, step["value"])
        case "remove":
            _remove(whole, path)
        case "replace":
            _replace(whole, path, step["value"])
        case "move":
            _add(whole, path, _remove(whole, _pointer(step["from"])))
        case "copy":
            _add(whole, path, copy.deepcopy(_get(whole, _pointer(step["from"]))))
        case "test":
            if _tested(whole, path) != step.get("value"):
                raise ValueError("the test failed")
        case other:
            raise ValueError(other)


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(path)
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]


def _get(whole: Any, path: list[str]) -> Any:
    for part in path:
        whole = whole[int(part)] if isinstance(whole, list) else whole[part]
    return whole


def _add(whole: Any, path: list[str], value: Any) -> None:
    parent, last = _get(whole, path[:-1]), path[-1]
    if isinstance(parent, list):
        position = len(parent) if last == "-" else int(last)
        if not 0 <= position <= len(parent):
            raise IndexError(last)
        parent.insert(position, value)
    else:
        parent[last] = value


def _replace(whole: Any, path: list[str], value: Any) -> None:
    """Of an object's field also if it is not there: the real server's library is not strict."""
    parent, last = _get(whole, path[:-1]), path[-1]
    parent[int(last) if isinstance(parent, list) else last] = value


def _tested(whole: Any, path: list[str]) -> Any:
    parent = _get(whole, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else _get(parent, path[-1:])


def _remove(whole: Any, path: list[str]) -> Any:
    parent, last = _get(whole, path[:-1]), path[-1]
    return parent.pop(int(last) if isinstance(parent, list) else last)
