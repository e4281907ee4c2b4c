"""Command lines for tests: read, or refused in words."""

import pytest

from sidecar.config.errors import Refused, UsageError
from sidecar.config.parse import Parsed, parse

NODE = {"NODE_NAME": "node-1"}
POD = {"NODE_NAME": "node-1", "NAMESPACE": "storage", "POD_NAME": "plugin-x"}


def parsed(*argv: str, environ=NODE) -> Parsed:
    result = parse(["--node-deployment", *argv], environ)
    assert isinstance(result, Parsed)
    return result


def faults(*argv: str, environ=NODE) -> tuple[str, ...]:
    with pytest.raises(Refused) as refused:
        parse(argv, environ)
    assert refused.value.exit_code == 1
    return refused.value.faults


def mistakes(*argv: str) -> tuple[str, ...]:
    with pytest.raises(UsageError) as malformed:
        parse(["--node-deployment", *argv], NODE)
    assert malformed.value.exit_code == 2
    return malformed.value.messages
