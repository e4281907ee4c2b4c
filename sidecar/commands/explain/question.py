"""Reads the line of `explain`, on which flags of `run` may stand too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.commands.line import CommandParser, reads
from sidecar.config.errors import UsageError
from sidecar.config.kinds import one_of

CLAIM, NODE = "pvc", "node"
_KINDS: Final = {"pvc": CLAIM, "persistentvolumeclaim": CLAIM, "node": NODE, "no": NODE}
USAGE: Final = (
    "usage: csi-node-sidecar explain pvc NAMESPACE/NAME [--node NODE] | explain node NAME [--intent reboot|retire]; "
    "either with [--driver DRIVER] [-o table|json] [flags of run]"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be explained, and in which form."""

    kind: str
    namespace: str
    name: str
    node: str
    driver: str
    intent: str
    as_json: bool
    flags: tuple[str, ...]


def read_question(words: Sequence[str], environ: Mapping[str, str]) -> Question | None:
    """None where help is wanted."""
    line = _parser(environ).read(words)
    if line is None:
        return None
    kind = _KINDS.get(line.positional[0]) if len(line.positional) == 2 else None
    if kind is None or (line.own.intent and kind != NODE):
        raise UsageError([USAGE])
    namespace, name = _named(kind, line.positional[1])
    return Question(
        kind,
        namespace,
        name,
        node=line.own.node,
        driver=line.own.driver,
        intent=line.own.intent,
        as_json=line.own.output == "json",
        flags=line.of_run,
    )


def _parser(environ: Mapping[str, str]) -> CommandParser:
    parser = CommandParser(USAGE)
    parser.add_argument("--node", default=environ.get("NODE_NAME", ""))
    parser.add_argument("--driver", default="")
    parser.add_argument("--intent", default="", type=reads(one_of("an intent", "reboot", "retire", "")))
    parser.add_argument("-o", "--output", default="table", type=reads(one_of("a form of output", "table", "json")))
    return parser


def _named(kind: str, word: str) -> tuple[str, str]:
    namespace, slash, name = word.rpartition("/")
    if not name or "/" in namespace or bool(slash) is not bool(namespace) or (slash and kind == NODE):
        raise UsageError([USAGE])
    return ("", name) if kind == NODE else (namespace or "default", name)
