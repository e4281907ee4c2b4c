"""How a command for people finds its cluster: with kubectl's flags, and where kubectl looks.

--kubeconfig; else KUBECONFIG, which may name several files; else ~/.kube/config; else the pod that the command runs in. What runs in a
DaemonSet looks for no file that nobody has named.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sidecar.config.config import Config
from sidecar.config.errors import Refused
from sidecar.config.parse import Parsed, parse


@dataclass(frozen=True, slots=True)
class Reach:
    """What the command's own flags say."""

    context: str = ""
    request_timeout: float | None = None

    @classmethod
    def of(cls, own: Namespace) -> "Reach":
        return cls(own.context, own.request_timeout)


def configured(flags: Sequence[str], reach: Reach, environ: Mapping[str, str], *, node: str = "-") -> Parsed | None:
    """The configuration of a command that is about `node`, if it is about any, from flags of `run` and its own. None: the version is
    asked for. Raises UsageError and Refused."""
    parsed = parse(["--node-deployment", *flags], {**environ, "NODE_NAME": node})
    if not isinstance(parsed, Parsed):
        return None
    config = parsed.config
    kubeconfig = config.kubeconfig or _at_home(config, reach, environ)
    if reach.context and not kubeconfig:
        raise Refused([f"--context={reach.context}: there is no kubeconfig that could have it: name one with --kubeconfig or KUBECONFIG"])
    chosen = replace(config, kubeconfig=kubeconfig, context=reach.context, request_timeout=reach.request_timeout)
    return replace(parsed, config=chosen)


def _at_home(config: Config, reach: Reach, environ: Mapping[str, str]) -> str:
    """Credentials that nobody has named are not sent to a server that somebody has."""
    home = environ.get("HOME", "")
    if not home or (config.master and not reach.context):
        return ""
    file = Path(home) / ".kube" / "config"
    try:
        return str(file) if file.is_file() else ""
    except OSError:  # a home that may not be looked into, as in a pod whose user is not its image's
        return ""
