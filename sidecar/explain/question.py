"""What `explain` was asked, on a line that may also carry the flags of `run`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.flags import TEXT, Kind, UsageError, one_of
from sidecar.own_flags import divide

CLAIM, NODE = "pvc", "node"
_KINDS: Final = {"pvc": CLAIM, "persistentvolumeclaim": CLAIM, "node": NODE, "no": NODE}
_FLAGS: Final = {
    "node": TEXT,
    "driver": TEXT,
    "intent": Kind("string", one_of("an intent", "reboot", "retire", ""), str),
    "output": Kind("string", one_of("a form of output", "table", "json"), str),
}

USAGE: Final = (
    "usage: csi-node-sidecar explain pvc NAMESPACE/NAME [--node NODE] | explain node NAME [--intent reboot|retire]; "
    "either with [--driver DRIVER] [-o table|json] [flags of run]"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, and how the answer should look."""

    kind: str
    namespace: str
    name: str
    node: str
    driver: str
    intent: str
    as_json: bool
    flags: tuple[str, ...]


def read_question(words: Sequence[str], environ: Mapping[str, str]) -> Question | None:
    """Nothing where help is wanted."""
    line = divide(words, _FLAGS, {"o": "output"}, USAGE)
    if line.help:
        return None
    kind = _KINDS.get(line.positional[0]) if len(line.positional) == 2 else None
    if kind is None or (line.own.get("intent") and kind != NODE):
        raise UsageError([USAGE])
    namespace, name = _named(kind, line.positional[1])
    return Question(
        kind,
        namespace,
        name,
        node=line.own.get("node", environ.get("NODE_NAME", "")),
        driver=line.own.get("driver", ""),
        intent=line.own.get("intent", ""),
        as_json=line.own.get("output") == "json",
        flags=line.of_run,
    )


def _named(kind: str, word: str) -> tuple[str, str]:
    namespace, slash, name = word.rpartition("/")
    if not name or "/" in namespace or bool(slash) is not bool(namespace) or (slash and kind == NODE):
        raise UsageError([USAGE])
    return ("", name) if kind == NODE else (namespace or "default", name)
