"""The command line: `run` (also without a verb, as upstream is called), `explain`, `uninstall`, `simulate`, `version`.

Only words are handled here. What `run` does is `process`'s, what `explain` finds out is `explain`'s, and so on; what is simulated is
`simulation`'s; all are imported late, so that `--help`, `--version` and a wrong flag answer at once, and so that what runs on nodes
never loads the simulation.
"""

import os
import signal
import sys
from collections.abc import Sequence

from sidecar import __version__
from sidecar.config import Parsed, Refused, ShowHelp, UsageError, help_text, parse
from sidecar.flags import closest

PROGRAM = "csi-node-sidecar"

COMMANDS = ("run", "explain", "uninstall", "simulate", "version")
VERBS = """Commands:
  run                      work as a sidecar until stopped; also what happens without a command
  explain pvc NS/NAME      say what this program would do with a claim, and why; writes nothing
  explain node NAME        say whether a node may be drained, or retired, and what blocks that; writes nothing
  uninstall --driver NAME  take away what sidecars of that driver have put on nodes; to be run when its DaemonSet is gone
  simulate race [flags]    let many nodes compete for claims on virtual time; --help tells how
  version                  print name and version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 it cannot work, 2 the command line is wrong."""
    # As PID 1 of a container a process without a handler ignores SIGTERM; the real one takes over when the loop runs.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # gRPC's core reads these when it is imported: its own lines on stderr would be neither klog's text nor JSON, and no child
    # process is started while it runs.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words.pop(0) if words and not words[0].startswith("-") else "run"
    try:
        match verb:
            case "run":
                return _run(words)
            case "explain":
                return _explain(words)
            case "uninstall":
                return _uninstall(words)
            case "simulate":
                return _simulate(words)
            case "version":
                return _version()
            case "":
                return _run([verb, *words])  # as an empty value in a template makes it
            case _ if any(word.startswith("-") for word in words):
                return _run_all_the_same(verb, words)
            case _:
                raise UsageError([_unknown(verb)])
    except UsageError as error:
        return _say("\n".join([*(f"{PROGRAM}: {message}" for message in error.messages), f"Run `{PROGRAM} --help` for all flags."]), 2)
    except Refused as error:
        return _say("\n".join(f"{PROGRAM}: {fault}" for fault in error.faults), 1)
    except KeyboardInterrupt:
        return 130


def _run(words: Sequence[str]) -> int:
    parsed = parse(words, os.environ)
    match parsed:
        case ShowHelp():
            print(help_text(PROGRAM) + "\n" + VERBS, end="")
            return 0
        case Parsed(config, warnings):
            from sidecar import process
            from sidecar.observe import logs

            logs.setup("json" if config.logging_format == "json" else "text", config.verbosity)
            return process.run(config, warnings)
        case _:
            return _version()


def _run_all_the_same(verb: str, words: Sequence[str]) -> int:
    """Upstream ignores a word too many. It is named if nothing comes of the rest: perhaps a command was meant."""
    try:
        return _run([verb, *words])
    except (UsageError, Refused):
        _say(f"{PROGRAM}: {_unknown(verb)}", 2)
        raise


def _unknown(verb: str) -> str:
    meant = closest(verb, COMMANDS)
    return f"unknown command {verb!r}; " + (f"did you mean {meant}?" if meant else f"known are {', '.join(COMMANDS)}")


def _explain(words: list[str]) -> int:
    from sidecar.explain import run

    return run(words, os.environ)


def _uninstall(words: list[str]) -> int:
    from sidecar.uninstall import run

    return run(words, os.environ)


def _simulate(words: list[str]) -> int:
    if words[:1] != ["race"]:
        return _say(f"usage: {PROGRAM} simulate race [flags]; `{PROGRAM} simulate race --help` shows them", 2)
    from sidecar.simulation.swarm import race

    try:
        return race.run(words[1:])
    except UsageError as error:
        hint = f"Run `{PROGRAM} simulate race --help` for all flags."
        return _say("\n".join([*(f"{PROGRAM} simulate race: {message}" for message in error.messages), hint]), 2)


def _version() -> int:
    print(f"{PROGRAM} {__version__}")
    return 0


def _say(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
