"""The error that a command of hack shows to a person: what cannot be done, and what would help."""

from __future__ import annotations


class Failure(Exception):
    pass
