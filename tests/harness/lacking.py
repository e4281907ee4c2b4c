"""A role without one of its rights, and what a program says of that."""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.rights.rights import Right
from tests.harness.accounts import Rules


def without(right: Right, rules: Rules) -> Rules:
    """These rules, but for one verb on one kind."""
    plural = right.resource.plural + (f"/{right.subresource}" if right.subresource else "")
    found: Rules = []
    for rule in rules:
        for resource in rule["resources"]:
            is_meant = resource == plural and right.resource.group in rule["apiGroups"]
            verbs = [verb for verb in rule["verbs"] if not (is_meant and verb == right.verb)]
            found.append({**rule, "resources": [resource], "verbs": verbs})
    return [rule for rule in found if rule["verbs"]]


def naming(right: Right, lines: Iterable[str]) -> tuple[str, ...]:
    """Those of these lines that name the right."""
    plural, sub = right.resource.plural, f"/{right.subresource}" if right.subresource else ""
    named = (f"{right.verb} on {plural}{sub}", f'cannot {right.verb} resource "{plural}{sub}"', str(right))
    escaped = named[1].replace('"', '\\"')
    return tuple(line for line in lines if any(text in line for text in (*named, escaped)))
