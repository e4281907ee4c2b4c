"""What GitHub demands of an issue form. A form that breaks a rule is not offered, and nobody is told."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

TOP = {"name": str, "description": str, "title": str, "labels": list, "assignees": list, "projects": list, "type": str, "body": list}
REQUIRED = ("name", "description", "body")
ATTRIBUTES = {
    "markdown": {"value": str},
    "input": {"label": str, "description": str, "placeholder": str, "value": str},
    "textarea": {"label": str, "description": str, "placeholder": str, "value": str, "render": str},
    "dropdown": {"label": str, "description": str, "multiple": bool, "options": list, "default": int},
    "checkboxes": {"label": str, "description": str, "options": list},
}
DEMANDED = {"markdown": ("value",), "dropdown": ("label", "options"), "checkboxes": ("label", "options")}
AN_ID = re.compile(r"[A-Za-z0-9_-]+")


def faults_of(form: Any) -> list[str]:
    """A line for each rule that the form breaks."""
    if not isinstance(form, dict):
        return ["is no mapping"]
    found = list(_faults_of_keys(form, TOP, REQUIRED))
    body = form.get("body")
    if not isinstance(body, list) or not body:
        return [*found, "body: is no list with something in it"]
    for number, element in enumerate(body):
        found += [f"body[{number}]: {fault}" for fault in _faults_of_element(element)]
    asked = [element for element in body if isinstance(element, dict) and element.get("type") != "markdown"]
    if not asked:
        found.append("body: nothing is asked")
    found += _repeated("id", [element["id"] for element in asked if "id" in element])
    found += _repeated("label", [str((element.get("attributes") or {}).get("label")) for element in asked])
    return found


def _faults_of_element(element: Any) -> Iterator[str]:
    kind = element.get("type") if isinstance(element, dict) else None
    if kind not in ATTRIBUTES:
        yield f"type: {kind!r} is none of {', '.join(ATTRIBUTES)}"
        return
    known: dict[str, type] = {"type": str, "attributes": dict}
    if kind != "markdown":
        known |= {"id": str, "validations": dict}
    yield from _faults_of_keys(element, known, ("attributes",))
    if "id" in element and not AN_ID.fullmatch(str(element["id"])):
        yield f"id: {element['id']!r} has other characters than letters, digits, - and _"
    attributes, validations = element.get("attributes"), element.get("validations")
    if isinstance(attributes, dict):
        yield from _faults_of_keys(attributes, ATTRIBUTES[kind], DEMANDED.get(kind, ("label",)))
        if "options" in ATTRIBUTES[kind]:
            yield from _faults_of_options(kind, attributes.get("options"))
    if isinstance(validations, dict):
        yield from _faults_of_keys(validations, {"required": bool}, ())


def _faults_of_options(kind: str, options: Any) -> Iterator[str]:
    if not isinstance(options, list) or not options:
        yield "options: is no list with something in it"
    elif kind == "dropdown":
        yield from (f"options: {one!r} is no text" for one in options if not isinstance(one, str) or not one.strip())
        yield from _repeated("option", [str(one) for one in options])
        if "none" in (str(one).lower() for one in options):
            yield "options: None is GitHub's own word for no choice"
    else:
        for one in options:
            if isinstance(one, dict):
                yield from _faults_of_keys(one, {"label": str, "required": bool}, ("label",))
            else:
                yield f"options: {one!r} is no mapping"


def _faults_of_keys(given: Json, known: dict[str, type], required: tuple[str, ...]) -> Iterator[str]:
    yield from (f"{key}: is missing" for key in required if key not in given)
    for key, value in given.items():
        if key not in known:
            yield f"{key}: no such key"
        elif not isinstance(value, known[key]) or (isinstance(value, str) and not value.strip()):
            yield f"{key}: {value!r} is no {known[key].__name__} with something in it"


def _repeated(what: str, names: list[str]) -> list[str]:
    return [f"{what} {name!r} is there {count} times" for name, count in Counter(names).items() if count > 1]
