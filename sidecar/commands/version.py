"""The command `version`: name and version in one line, or with `-o json` also what an issue needs to know of program and machine."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from sidecar import __version__
from sidecar.commands.line import CommandParser, reads
from sidecar.commands.printing import program, show
from sidecar.config.errors import UsageError
from sidecar.config.kinds import one_of
from sidecar.csi.version import CSI_VERSION

REVISION: Final = "CSI_NODE_SIDECAR_REVISION"
"""The variable in which the image says of which commit it was built, if its builder has told (Dockerfile)."""
_TEXT, _JSON = "text", "json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""By the kernel's name, the one that images and nodes have."""


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code, 0. Raises UsageError."""
    usage = f"usage: {program()} version [-o json]"
    parser = CommandParser(usage)
    parser.add_argument("-o", "--output", default=_TEXT, type=reads(one_of("a form of output", _TEXT, _JSON)))
    line = parser.read(words)
    if line is None:
        show(usage)
        return 0
    if line.positional or line.of_run:
        raise UsageError([usage])
    show(json.dumps(facts(environ), indent=2) if line.own.output == _JSON else f"csi-node-sidecar {__version__}")
    return 0


def facts(environ: Mapping[str, str]) -> dict[str, str | None]:
    """`gitCommit` is null where nobody knows it, as in a wheel or in an image that was built at home."""
    machine = os.uname()
    return {
        "version": __version__,
        "gitCommit": environ.get(REVISION) or None,
        "csi": CSI_VERSION,
        "python": ".".join(str(number) for number in sys.version_info[:3]),
        "platform": f"{machine.sysname.lower()}/{_ARCHITECTURES.get(machine.machine, machine.machine)}",
    }
