"""The flags that commands for people have beside those of `run`. Where kubectl has such a flag, it is kubectl's."""

from dataclasses import dataclass
from typing import Any, Final

from sidecar.commands.forms import FORMS, JSON, TABLE, WIDE, YAML
from sidecar.config.errors import UsageError
from sidecar.config.kinds import BOOL, TEXT, Kind, one_of, read_duration, show_duration


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, as the parser, the help and the completion need it."""

    name: str
    value: str
    """What the help calls its value; empty for one that has none."""
    help: str
    kind: Kind = TEXT
    default: Any = ""
    letter: str = ""
    words: tuple[str, ...] = ()
    """The values to offer."""


def _read_timeout(text: str) -> float:
    """Seconds. As kubectl reads it: a number alone means seconds, and 0 that there is no limit."""
    seconds = float(text) if text.isascii() and text.isdigit() and len(text) < 10 else read_duration(text)
    if seconds < 0:
        raise UsageError([f'"{text}" is less than nothing'])
    return seconds or float("inf")


def output(*, wide: bool = False) -> Flag:
    """--output. `text` is another word for `table`."""
    words = (TABLE, *((WIDE,) if wide else ()), JSON, YAML)
    read = one_of("a form of output", *words, "text")
    return Flag("output", "|".join(words), "Form of the answer.", Kind("string", lambda text: FORMS[read(text)], str), TABLE, "o", words)


REACH: Final = (
    Flag("context", "NAME", "Context of the kubeconfig to use, instead of its current one."),
    Flag(
        "request-timeout",
        "TIME",
        "Limit of every single request to the API server, such as 10s or 2m; 0: none. By default 30s.",
        Kind("duration", _read_timeout, show_duration),
        None,
    ),
)
"""How a command reaches the cluster, beside --kubeconfig and --master. See `reach`."""
NAMESPACE: Final = Flag("namespace", "NAMESPACE", "Namespace of the claim; by default that of the context, else default.", letter="n")
NAMESPACE_ALONE: Final = Flag("namespace", "NAMESPACE", "Only claims of this namespace; by default those of all.", letter="n")
DRIVER: Final = Flag("driver", "DRIVER", "Name of the CSI driver. Required.")
DRIVER_ALONE: Final = Flag("driver", "DRIVER", "Only this CSI driver; by default all that have, or could have, volumes there.")
DRIVER_TO_CHECK: Final = Flag("driver", "DRIVER", "The CSI driver; by default the one at the socket, or the one beside our containers.")
NAMESPACE_OF_OURS: Final = Flag("namespace", "NAMESPACE", "Only sidecars of this namespace; by default those of all.", letter="n")
IMAGE: Final = Flag("image", "TEXT", "What the name of our image contains here; by default csi-node-sidecar.")
FILE: Final = Flag("filename", "FILE", "ask about the object in this file, which need not exist yet", letter="f")
NODE_ALONE: Final = Flag("node", "NODE", "Only volumes on this node.")
INTENT: Final = Flag(
    "intent",
    "reboot|retire",
    "Only what concerns a reboot (the disks come back), or retiring (they do not).",
    Kind("string", one_of("an intent", "reboot", "retire", ""), str),
    words=("reboot", "retire"),
)
EXIT_CODE: Final = Flag("exit-code", "", "Answer by the exit code too.", BOOL, False)
YES: Final = Flag("yes", "", "Do not ask.", BOOL, False)
RELEASE: Final = Flag("yes", "", "Do it; without this flag nothing is changed.", BOOL, False)
LISTEN: Final = Flag("listen", "SOCKET", "Where to listen: drbd.sock in the folder of the driver's socket. Required.", default=None)
RELEASE_IO: Final = Flag("release", "", "Fail frozen I/O of a resource when the sidecar asks for it, so that its pod can end.", BOOL, False)
FORCE: Final = Flag("force", "", "Even while a sidecar of ours runs, or where that cannot be asked.", BOOL, False)
TERMINATING: Final = Flag("terminating", "", "Also of volumes that are being deleted: their data stays on the node.", BOOL, False)
DELETE: Final = Flag("delete", "VOLUME", "Delete this volume, by its listed name or handle, if nobody names it. Asks.", default=None)
