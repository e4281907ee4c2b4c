"""The command `check`: says of everything that a sidecar needs whether it is as it should be, one line each, with what to do.

On a node (in the pod, by `kubectl exec`) it asks the driver too; from outside it looks at the manifest that runs, by the API server alone.
It writes nothing. What cannot be asked is told, and the rest is checked all the same.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sidecar.commands import help
from sidecar.commands.check import flag_rules, lines
from sidecar.commands.check.asking_io import Place, flags_of_process, look
from sidecar.commands.check.findings import Flags, NotAsked
from sidecar.commands.check.judging import judge
from sidecar.commands.check.reading import OUR_IMAGE
from sidecar.commands.forms import STRUCTURED, structured
from sidecar.commands.line import CommandParser, Line
from sidecar.commands.printing import complain, show
from sidecar.commands.reach import Reach, configured
from sidecar.commands.table import flags_of, usage
from sidecar.config.config import Config
from sidecar.config.errors import Refused, UsageError
from sidecar.config.parse import parse
from sidecar.doors import Instruments, open_doors
from sidecar.errors import SidecarError
from sidecar.observe.logs import setup_for_people

_WAYS: Final = ("kubeconfig", "master", "csi-address", "timeout", "kube-api-qps", "kube-api-burst", "v", "logging-format", "dry-run")
"""Flags of `run` by which this command finds its way. Whoever gives others means those of the sidecar, to be checked."""
_SET: Final = {"NODE_NAME": "the-node", "NAMESPACE": "the-namespace", "POD_NAME": "the-pod"}
"""What a pod has set, for flags that are checked elsewhere."""
_QPS, _BURST = 50.0, 100
"""One person asks once."""


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 nothing is wrong, 1 something is, 2 the command line cannot be read."""
    line = CommandParser(usage("check"), flags_of("check")).read(words)
    if line is None:
        show(help.text(["check"]), end="")
        return 0
    ways = [word for word in line.of_run if _name(word) in _WAYS]
    parsed = configured(ways, Reach.of(line.own), environ, node=environ.get("NODE_NAME") or "-")
    if line.positional or parsed is None:
        raise UsageError([usage("check")])
    config = _without_pauses(parsed.config)
    place = _place(line, config, environ)
    setup_for_people(config.verbosity, logging.CRITICAL)  # what is wrong is said here
    try:
        return asyncio.run(_check(_at_its_socket(config, place.flags), place, form=line.own.output))
    except SidecarError as error:
        complain(f"{error}; nothing was checked: see --kubeconfig")
        return 1


async def _check(config: Config, place: Place, *, form: str) -> int:
    opened = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        found = await look(opened, place)
    finally:
        await opened.close()
    told = tuple(judge(found))
    if form in STRUCTURED:
        show(structured(lines.as_json(told, found), form))
    else:
        show(lines.as_text(told, encoding=sys.stdout.encoding or ""))
    return lines.exit_code(told)


def _place(line: Line, config: Config, environ: Mapping[str, str]) -> Place:
    in_pod = not config.kubeconfig and not config.master
    flags = _given(line, environ, in_pod=in_pod) or (flags_of_process() if in_pod else NotAsked("none were given"))
    runs_here = in_pod and not isinstance(flags, NotAsked)
    return Place(
        driver=line.own.driver,
        on_node=runs_here or bool(environ.get("NODE_NAME")) or config.origins.get("csi-address") == "flag",
        node=environ.get("NODE_NAME", ""),
        namespace=environ.get("NAMESPACE", ""),
        pod=environ.get("POD_NAME", "") or (os.uname().nodename if in_pod else ""),
        image=line.own.image or OUR_IMAGE,
        only_in=line.own.namespace,
        flags=flags,
    )


def _given(line: Line, environ: Mapping[str, str], *, in_pod: bool) -> Flags | None:
    """The sidecar's flags, if they stand behind this command's own. Raises UsageError for what cannot be read."""
    if all(_name(word) in _WAYS for word in line.of_run):
        return None
    around = dict(environ) if in_pod else {**_SET, **environ}
    flags = Flags("the command line", ("--node-deployment", *line.of_run), around)
    try:
        parse(flags.words, flags.environ)
    except Refused:
        pass  # which is told with the rest
    return flags


def _at_its_socket(config: Config, flags: Flags | NotAsked) -> Config:
    """The driver's, by the flags of the process that runs, unless another one is named."""
    if config.origins.get("csi-address") == "flag" or isinstance(flags, NotAsked):
        return config
    theirs = flag_rules.read(flags).config
    return config if theirs is None else replace(config, csi_address=theirs.csi_address)


def _without_pauses(config: Config) -> Config:
    """Without the pauses that a program makes which runs on every node, unless somebody has asked for some."""
    if config.origins.get("kube-api-qps") == "flag":
        return config
    return replace(config, kube_api_qps=_QPS, kube_api_burst=_BURST)


def _name(word: str) -> str:
    return word.removeprefix("--").partition("=")[0]
