"""Checks the flags that the sidecar runs with: those that keep it from starting, and those that do nothing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar import settings
from sidecar.commands.check.findings import Findings, Flags, NotAsked
from sidecar.commands.check.lines import Line, failed, not_asked, ok, warning
from sidecar.config.config import Config
from sidecar.config.errors import Refused, UsageError
from sidecar.config.parse import Parsed, parse

CHECK: Final = "flags"


@dataclass(frozen=True, slots=True)
class Read:
    """`config` is None where the program would not start."""

    config: Config | None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read(flags: Flags) -> Read:
    try:
        parsed = parse(flags.words, flags.environ)
    except UsageError as error:
        return Read(None, error.messages)
    except Refused as error:
        return Read(None, error.faults)
    if not isinstance(parsed, Parsed):
        return Read(None, ("--help or --version is among them: the program answers and ends",))
    return Read(parsed.config, (), parsed.warnings)


def config_of(found: Findings) -> Config | None:
    """With what the sidecar runs; None: that is not known, or it does not start."""
    return None if isinstance(found.flags, NotAsked) else read(found.flags).config


def check(found: Findings) -> Iterator[Line]:
    if isinstance(found.flags, NotAsked):
        yield not_asked(CHECK, found.flags)
        return
    judged, source = read(found.flags), found.flags.source
    for fault in judged.faults:
        yield failed(CHECK, f"the program does not start: {fault}", f"correct that in {source}")
    for said in (*judged.warnings, *(idle(judged.config) if judged.config else ())):
        yield warning(CHECK, said, f"take it out of {source}, or correct it there")
    if not judged.faults and not judged.warnings:
        yield ok(CHECK, f"{len(found.flags.words)} of {source} can be read, and do not contradict each other")


@dataclass(frozen=True, slots=True)
class Group:
    """Flags that do nothing without another one."""

    names: Sequence[str]
    is_idle: Callable[[Config], bool]
    needs: str


_GROUPS: Final = (
    Group(
        (
            "capacity-threads",
            "capacity-poll-interval",
            "capacity-for-immediate-binding",
            "capacity-ownerref-level",
            "capacity-reserve-pending",
            "capacity-stale-after",
            "kube-api-capacity-qps",
            "kube-api-capacity-burst",
        ),
        lambda config: not config.enable_capacity,
        "--enable-capacity",
    ),
    Group(
        ("node-deployment-base-delay", "node-deployment-max-delay", "node-deployment-placement"),
        lambda config: not config.node_deployment_immediate_binding,
        "--node-deployment-immediate-binding",
    ),
    Group(
        (
            "drain-default-policy",
            "evacuation-deadline",
            "max-concurrent-evacuations",
        ),
        lambda config: not settings.drains(config),
        "--drain-report or --node-drain-policy",
    ),
    Group(("reprovision-pause",), lambda config: not config.allow_reprovision, "--allow-reprovision"),
    Group(("drain-gate-assumes",), lambda config: not config.drain_gate_image, "--drain-gate-image"),
)


def idle(config: Config) -> Iterable[str]:
    """Flags that were given and do nothing, beside those that the program itself warns of."""
    for group in _GROUPS:
        given = [name for name in group.names if config.origins.get(name) == "flag"]
        if given and group.is_idle(config):
            yield f"{', '.join(f'--{name}' for name in given)}: without effect, because {group.needs} is not on"


def report_only(config: Config | None) -> bool:
    """Somebody else provisions for this driver, and is meant to."""
    return config is not None and not config.provisioning
