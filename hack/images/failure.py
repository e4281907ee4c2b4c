"""The one error of hack/image: what cannot be done and what would help, said to a person."""

from __future__ import annotations


class Failure(Exception):
    pass
