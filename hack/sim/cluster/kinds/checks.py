"""Rules that several kinds share: names, labels, metadata, selectors, taints. Each answers with the causes it found."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hack.sim.cluster.refusals import Cause, immutable, not_allowed, required, too_long, unsupported, wrong
from sidecar.model.objects import Json

Causes = list[Cause]

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_MOST_ANNOTATIONS: Final = 256 * 1024

_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric "
    f"character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_QUALIFIED_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)
_STANDARD_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
# What a client sends back of these must be what it was given.
_GIVEN_BY_SERVER: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace")


def subdomain(name: str) -> str:
    """Why this cannot be a name; empty if it can. The rule of most kinds."""
    if len(name) > _LONGEST_NAME:
        return f"must be no more than {_LONGEST_NAME} bytes"
    return "" if re.fullmatch(_SUBDOMAIN, name) else _SUBDOMAIN_RULE


def label_name(name: str) -> str:
    if len(name) > _LONGEST_LABEL:
        return f"must be no more than {_LONGEST_LABEL} bytes"
    if "." in name:
        return "must not contain dots"
    return "" if re.fullmatch(_LABEL, name) else _LABEL_RULE


def path_segment(name: str) -> str:
    """Roles and their bindings may be called almost anything."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{sign}'" for sign in "/%" if sign in name), "")


def metadata(meta: Json, *, name_rule: Any) -> Causes:
    found: Causes = []
    if meta.get("generateName") and (why := name_rule(meta["generateName"].rstrip("-.") or "x")):
        found.append(wrong("metadata.generateName", meta["generateName"], why))
    if not meta.get("name"):
        found.append(required("metadata.name", "name or generateName is required"))
    elif why := name_rule(meta["name"]):
        found.append(wrong("metadata.name", meta["name"], why))
    found += labels(meta.get("labels"), "metadata.labels")
    found += _annotations(meta.get("annotations") or {})
    found += _owners(meta.get("ownerReferences") or ())
    for number, word in enumerate(meta.get("finalizers") or ()):
        found += _finalizer(word, number)
    return found


def metadata_change(new: Json, old: Json) -> Causes:
    found = [immutable(f"metadata.{key}", new[key]) for key in _GIVEN_BY_SERVER if key in new and new[key] != old.get(key)]
    late = [word for word in new.get("finalizers") or () if word not in (old.get("finalizers") or ())]
    if old.get("deletionTimestamp") and late:
        words = ", ".join(f'"{word}"' for word in late)
        detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{words}}}"
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
    if len(value) > _LONGEST_LABEL:
        return [wrong(field, value, f"must be no more than {_LONGEST_LABEL} bytes")]
    return [] if re.fullmatch(_VALUE, value) else [wrong(field, value, _VALUE_RULE)]


def qualified_name(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and (why := subdomain(prefix)):
        return f"prefix part {why}"
    if not name:
        return "name part must be non-empty"
    if len(name) > _LONGEST_LABEL:
        return f"name part must be no more than {_LONGEST_LABEL} bytes"
    return "" if re.fullmatch(_QUALIFIED, name) else _QUALIFIED_RULE


def label_selector(selector: Json | None, field: str) -> Causes:
    found = labels((selector or {}).get("matchLabels"), f"{field}.matchLabels")
    for number, item in enumerate((selector or {}).get("matchExpressions") or ()):
        found += _expression(item, f"{field}.matchExpressions[{number}]", ("In", "NotIn", "Exists", "DoesNotExist"))
    return found


def node_selector_terms(terms: Sequence[Json], field: str) -> Causes:
    found: Causes = []
    for number, term in enumerate(terms):
        for position, item in enumerate(term.get("matchExpressions") or ()):
            place = f"{field}[{number}].matchExpressions[{position}]"
            found += _expression(item, place, ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
            for index, value in enumerate(item.get("values") or ()):
                found += _label_value(value, f"{place}.values[{index}]")
    return found


def one_of(value: Any, field: str, allowed: Sequence[str]) -> Causes:
    return [] if value in allowed else [unsupported(field, value, allowed)]


def all_of(values: Iterable[Any], field: str, allowed: Sequence[str]) -> Causes:
    return [unsupported(field, value, allowed) for value in values if value not in allowed]


def changed(new: Json, old: Json, *fields: str) -> Causes:
    """These may not change. Dots lead inwards; a refusal names what is before the colon, if there is one."""
    return [immutable(field, inside(new, field)) for field in fields if inside(new, field) != inside(old, field)]


def inside(obj: Any, field: str) -> Any:
    for key in field.split("."):
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


def _expression(item: Json, field: str, operators: Sequence[str]) -> Causes:
    operator, values, found = item.get("operator"), item.get("values") or (), []
    if why := qualified_name(str(item.get("key") or "")):
        found.append(wrong(f"{field}.key", item.get("key") or "", why))
    if operator not in operators:
        found.append(wrong(f"{field}.operator", operator or "", "not a valid selector operator"))
    elif operator in ("In", "NotIn") and not values:
        found.append(required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        found.append(not_allowed(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    return found


def _annotations(values: Mapping[str, str]) -> Causes:
    found = [wrong("metadata.annotations", key, why) for key in values if (why := qualified_name(key.lower()))]
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > _MOST_ANNOTATIONS:
        found.append(too_long("metadata.annotations", _MOST_ANNOTATIONS))
    return found


def _owners(owners: Sequence[Json]) -> Causes:
    found: Causes = []
    for owner in owners:
        if not owner.get("apiVersion"):
            found.append(wrong("metadata.ownerReferences.apiVersion", "", "version must not be empty"))
        lacking = [key for key in ("kind", "name", "uid") if not owner.get(key)]
        found += [wrong(f"metadata.ownerReferences.{key}", "", "must not be empty") for key in lacking]
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            found.append(wrong("metadata.ownerReferences", owner, "/v1, Kind=Event is disallowed from being an owner"))
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        detail = 'Only one reference can have Controller set to true. Found "true" in references for ' + " and ".join(controllers[:2])
        found.append(wrong("metadata.ownerReferences", list(owners), detail))
    return found


def _finalizer(word: str, number: int) -> Causes:
    if why := qualified_name(word):
        return [wrong("metadata.finalizers", word, why)]
    if "/" not in word and word not in _STANDARD_FINALIZERS:
        return [wrong(f"metadata.finalizers[{number}]", word, "name is neither a standard finalizer name nor is it fully qualified")]
    return []
