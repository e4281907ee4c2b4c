"""The decision to leave things as they are, which several rules of this room make. Its name is a label of the decisions' metric."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rest:
    """Change nothing, and look again at `until`, by the wall clock. None: when something changes."""

    why: str
    until: float | None = None
