"""The forms in which commands answer: a table for people, JSON and YAML for programs."""

import json
from types import TracebackType
from typing import Any, Final

from sidecar.commands.printing import show
from sidecar.commands.yaml_text import to_yaml

TABLE, WIDE, JSON, YAML = "table", "wide", "json", "yaml"
FORMS: Final = {TABLE: TABLE, "text": TABLE, WIDE: WIDE, JSON: JSON, YAML: YAML}
STRUCTURED: Final = (JSON, YAML)


def structured(value: Any, form: str) -> str:
    """As JSON or YAML, without a line break at the end."""
    return to_yaml(value).rstrip("\n") if form == YAML else json.dumps(value, indent=2)


class Told:
    """What a command does: line by line for people, or as one document at the end for programs, also if it fails midway."""

    def __init__(self, form: str, **document: Any) -> None:
        self._form = form
        self._document = document

    @property
    def is_structured(self) -> bool:
        return self._form in STRUCTURED

    def say(self, line: str, *, end: str = "\n") -> None:
        """For people."""
        if not self.is_structured:
            show(line, end=end)

    def row(self, list_: str, **fields: Any) -> None:
        """For programs: another entry of a list of the document. What is empty is left out."""
        self._document[list_].append({name: value for name, value in fields.items() if value not in ("", None)})

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.is_structured and (error is None or any(isinstance(value, list) and value for value in self._document.values())):
            show(structured(self._document, self._form))
