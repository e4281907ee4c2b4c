"""Rules that several kinds share: names, labels, metadata, selectors. Each answers with the causes it found."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hack.sim.cluster.refusals import Cause, immutable, not_allowed, required, too_long, unsupported, wrong
from sidecar.model.objects import Json

Causes = list[Cause]

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_MOST_ANNOTATIONS: Final = 256 * 1024
# What a client sends back of these must be what it was given.
_GIVEN_BY_SERVER: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace")


def subdomain(name: str) -> str:
    """Why this cannot be a name; empty if it can. The rule of most kinds."""
    return _why_not(name, _SUBDOMAIN, _LONGEST_NAME, "a lowercase RFC 1123 subdomain")


def _why_not(text: str, pattern: str, longest: int, what: str) -> str:
    if len(text) > longest:
        return f"must be no more than {longest} bytes"
    return "" if re.fullmatch(pattern, text) else f"{what} must match, as the regex used for validation is '{pattern}'"


def metadata(meta: Json, *, name_rule: Callable[[str], str]) -> Causes:
    found: Causes = []
    if not meta.get("name"):
        found.append(required("metadata.name", "name or generateName is required"))
    elif why := name_rule(meta["name"]):
        found.append(wrong("metadata.name", meta["name"], why))
    found += labels(meta.get("labels"), "metadata.labels")
    found += _annotations(meta.get("annotations") or {})
    for owner in meta.get("ownerReferences") or ():
        lacking = [key for key in ("apiVersion", "kind", "name", "uid") if not owner.get(key)]
        found += [wrong(f"metadata.ownerReferences.{key}", "", "must not be empty") for key in lacking]
    found += [wrong("metadata.finalizers", word, why) for word in meta.get("finalizers") or () if (why := qualified_name(word))]
    return found


def metadata_change(new: Json, old: Json) -> Causes:
    found = [immutable(f"metadata.{key}", new[key]) for key in _GIVEN_BY_SERVER if key in new and new[key] != old.get(key)]
    late = [word for word in new.get("finalizers") or () if word not in (old.get("finalizers") or ())]
    if old.get("deletionTimestamp") and late:
        detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {late}"
        found.append(not_allowed("metadata.finalizers", detail))
    return found


def labels(values: Mapping[str, str] | None, field: str) -> Causes:
    found: Causes = []
    for key, value in (values or {}).items():
        if why := qualified_name(key):
            found.append(wrong(field, key, why))
        found += _label_value(value, field)
    return found


def _label_value(value: str, field: str) -> Causes:
    why = _why_not(value, _VALUE, _LONGEST_LABEL, "a valid label")
    return [wrong(field, value, why)] if why else []


def qualified_name(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and (why := subdomain(prefix)):
        return f"prefix part {why}"
    return _why_not(name, _QUALIFIED, _LONGEST_LABEL, "name part") if name else "name part must be non-empty"


def label_selector(selector: Json | None, field: str) -> Causes:
    found = labels((selector or {}).get("matchLabels"), f"{field}.matchLabels")
    return found + expressions((selector or {}).get("matchExpressions") or (), f"{field}.matchExpressions")


def expressions(items: Sequence[Json], field: str) -> Causes:
    found: Causes = []
    for number, item in enumerate(items):
        key, place = str(item.get("key") or ""), f"{field}[{number}]"
        if why := qualified_name(key):
            found.append(wrong(f"{place}.key", key, why))
        for value in item.get("values") or ():
            found += _label_value(value, f"{place}.values")
    return found


def all_of(values: Iterable[Any], field: str, allowed: Sequence[str]) -> Causes:
    return [unsupported(field, value, allowed) for value in values if value not in allowed]


def changed(new: Json, old: Json, fields: Iterable[str]) -> Causes:
    """These may not change. Dots lead inwards."""
    return [immutable(field, inside(new, field)) for field in fields if inside(new, field) != inside(old, field)]


def inside(obj: Any, field: str) -> Any:
    for key in field.split("."):
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


def _annotations(values: Mapping[str, str]) -> Causes:
    found = [wrong("metadata.annotations", key, why) for key in values if (why := qualified_name(key.lower()))]
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > _MOST_ANNOTATIONS:
        found.append(too_long("metadata.annotations", _MOST_ANNOTATIONS))
    return found
