"""For what a machine cannot run: it is skipped so that nobody overlooks it, and in continuous integration it fails."""

from __future__ import annotations

import os
import warnings
from typing import NoReturn

import pytest


def not_tested(what: str, why: str) -> NoReturn:
    """`what` is left out, because of the first line of `why`."""
    message = f"NOT TESTED: {what}: {why.splitlines()[0]}"
    if os.environ.get("CI"):
        pytest.fail(f"{message}\nCI must not pass without it", pytrace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # elsewhere they are errors; this one is to be read in the summary
        warnings.warn(message, stacklevel=3)
    pytest.skip(message)
