"""The three patches, as functions of two values: RFC 6902 as far as it is sent, RFC 7386, and strategic merge as our kinds need it."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from hack.sim.cluster.refusals import Refused, bad_request
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model.objects import Json

APPLY_PATCH: Final = "application/apply-patch+yaml"

# Lists that a strategic merge joins, by the key that tells entries apart; all others it replaces. The key None marks a set of words.
MERGED_LISTS: Final[Mapping[str, str | None]] = {
    "finalizers": None, "ownerReferences": "uid", "conditions": "type", "containers": "name", "volumes": "name", "drivers": "name",
}  # fmt: skip
_DELETE_WORDS: Final = "$deleteFromPrimitiveList/"


def patched(old: Json, patch: Any, content_type: str) -> Json:
    """A new object; `old` stays as it is, and may share parts with the new one."""
    if content_type == JSON_PATCH:
        return _json_patched(old, patch)
    if content_type == MERGE_PATCH:
        return dict(merged(old, patch))
    if content_type in (STRATEGIC_MERGE_PATCH, APPLY_PATCH):
        return strategically_merged(old, patch)
    raise Refused(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


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
    result: Json = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if key.startswith(_DELETE_WORDS):
            name = key.removeprefix(_DELETE_WORDS)
            result[name] = [word for word in result.get(name) or () if word not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = strategically_merged(result.get(key), value)
        elif isinstance(value, list) and key in MERGED_LISTS and isinstance(result.get(key), list):
            result[key] = _joined(result[key], value, MERGED_LISTS[key])
        elif not key.startswith("$"):
            result[key] = [item for item in value if not _goes(item)] if isinstance(value, list) else value
    return result


def _joined(old: list[Any], new: list[Any], key: str | None) -> list[Any]:
    if key is None:
        return old + [word for word in new if word not in old]
    by_key = {item.get(key): item for item in old}
    for item in new:
        if _goes(item):
            by_key.pop(item[key], None)
        else:
            by_key[item[key]] = strategically_merged(by_key.get(item[key]), item)
    return list(by_key.values())


def _goes(item: Any) -> bool:
    """Only makes sense where something was before."""
    return isinstance(item, Mapping) and item.get("$patch") == "delete"


def _json_patched(old: Json, patch: Any) -> Json:
    """Of the operations those that are sent, on fields of objects. `replace` is lax, as the real server's library is."""
    if not isinstance(patch, list) or not all(isinstance(step, Mapping) for step in patch):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp")
    result = copy.deepcopy(old)
    try:
        for step in patch:
            *above, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].removeprefix("/").split("/"))
            parent: Any = result
            for part in above:
                parent = parent[part]
            match step["op"]:
                case "add" | "replace":
                    parent[last] = step["value"]
                case "remove":
                    del parent[last]
                case "test" if parent.get(last) == step.get("value"):
                    pass
                case other:
                    raise ValueError(other)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        raise Refused(422, "Invalid", "the server rejected our request due to an error in our request", details={}) from None
    return result
