"""What `explain` was asked: its own words, taken out of a line that may also carry the flags of `run`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.config import UsageError

CLAIM, NODE = "pvc", "node"
_KINDS: Final = {"pvc": CLAIM, "persistentvolumeclaim": CLAIM, "node": NODE, "no": NODE}
_INTENTS: Final = ("", "reboot", "retire")

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


def read_question(words: Sequence[str], environ: Mapping[str, str]) -> Question:
    """Takes out what is explain's own; the rest are the flags that `run` has too."""
    own = {"--node": environ.get("NODE_NAME", ""), "--driver": "", "--intent": "", "-o": "table", "--output": ""}
    positional: list[str] = []
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in own:
            own[name] = value if equals else next(rest, "")
        elif word.startswith("-") or (flags and positional[1:]):
            flags.append(word)
        else:
            positional.append(word)
    output = own["--output"] or own["-o"]
    kind = _KINDS.get(positional[0]) if len(positional) == 2 else None
    if kind is None or output not in ("table", "json") or own["--intent"] not in _INTENTS or (own["--intent"] and kind != NODE):
        raise UsageError([USAGE])
    namespace, name = _named(kind, positional[1])
    return Question(kind, namespace, name, own["--node"], own["--driver"], own["--intent"], output == "json", tuple(flags))


def _named(kind: str, word: str) -> tuple[str, str]:
    namespace, slash, name = word.rpartition("/")
    if not name or "/" in namespace or bool(slash) is not bool(namespace) or (slash and kind == NODE):
        raise UsageError([USAGE])
    return ("", name) if kind == NODE else (namespace or "default", name)
