"""All checks, in the order in which they are told."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sidecar.commands.check import driver_rules, flag_rules, object_rules, other_rules, right_rules, server_rules
from sidecar.commands.check.findings import Findings, NotAsked
from sidecar.commands.check.lines import Line

Check = Callable[[Findings], Iterator[Line]]
CHECKS: Final[tuple[Check, ...]] = (
    server_rules.version,
    driver_rules.name,
    flag_rules.check,
    driver_rules.socket,
    driver_rules.capabilities,
    driver_rules.topology,
    object_rules.driver_object,
    object_rules.classes,
    object_rules.published,
    right_rules.check,
    other_rules.check,
    server_rules.claim_policy,
    server_rules.clock,
)


_WITHOUT_SERVER: Final = (server_rules.version, flag_rules.check, driver_rules.socket, driver_rules.capabilities)
"""Where the API server does not answer, that is said once."""


def judge(found: Findings) -> Iterable[Line]:
    for check in _WITHOUT_SERVER if isinstance(found.server, NotAsked) else CHECKS:
        yield from check(found)
