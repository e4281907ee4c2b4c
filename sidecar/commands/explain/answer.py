"""What `explain` answers: a text, and the verdicts that the exit code tells."""

import json
from collections.abc import Iterable
from typing import Any, Final

from sidecar.commands.explain.yaml_text import to_yaml
from sidecar.drain.vocabulary import Status
from sidecar.frozen import frozen

TABLE, WIDE, JSON, YAML = "table", "wide", "json", "yaml"
FORMS: Final = {TABLE: TABLE, "text": TABLE, WIDE: WIDE, JSON: JSON, YAML: YAML}

_CODES: Final = {Status.TRUE: 0, Status.UNKNOWN: 4, Status.FALSE: 3}
"""From the best to the worst. 1 and 2 are for what could not be read: the cluster, the command line."""


@frozen
class Answer:
    text: str
    statuses: tuple[Status, ...] = ()
    """For --exit-code."""


def exit_code(statuses: Iterable[Status]) -> int:
    """Of the worst. Nothing at all is ready."""
    ranked = tuple(_CODES)
    return _CODES[max(statuses, key=ranked.index, default=Status.TRUE)]


def structured(value: Any, form: str) -> str:
    """As JSON or YAML, without a line break at the end."""
    return to_yaml(value).rstrip("\n") if form == YAML else json.dumps(value, indent=2)
