"""The command line: `run` (also without a verb, as upstream is called), and the other commands, which are listed in `commands.table`.

Chooses the command and turns its errors into exit codes. Commands are imported only when they are called, so that `--help`, `--version` and
a wrong flag answer at once.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence

from sidecar.commands.printing import PROGRAM, is_plugin, program, say_aside, show
from sidecar.config.errors import Refused, UsageError
from sidecar.config.parse import Parsed, ShowHelp, parse
from sidecar.config.words import closest

COMMANDS = (
    "run",
    "check",
    "explain",
    "node",
    "leftovers",
    "label",
    "uninstall",
    "release-finalizers",
    "read-drbd",
    "version",
    "help",
    "completion",
)
"""The verbs of `commands.table`, which a start of `run` does not load."""
_WITH_FLAGS = ("check", "explain", "node", "leftovers", "label", "uninstall", "release-finalizers", "read-drbd")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 it cannot work, 2 the command line cannot be read."""
    # PID 1 of a container ignores SIGTERM unless it has a handler. `process` installs the real one when the event loop runs.
    signal.signal(signal.SIGTERM, _ended_early)
    # gRPC reads these when it is imported. Its own lines on stderr would be neither klog's text nor JSON; fork support is not needed,
    # because no child process is started.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    words = list(sys.argv[1:] if argv is None else argv)
    if not words and is_plugin():  # who types that wants to know what there is, and no sidecar
        words = ["help"]
    verb = words.pop(0) if words and not words[0].startswith("-") else "run"
    try:
        match verb:
            case "run":
                return _run(words)
            case "check":
                from sidecar.commands import check

                return check.run(words, os.environ)
            case "explain":
                from sidecar.commands import explain

                return explain.run(words, os.environ)
            case "node":
                from sidecar.commands import node

                return node.run(words, os.environ)
            case "leftovers":
                from sidecar.commands import leftovers

                return leftovers.run(words, os.environ)
            case "label":
                from sidecar.commands import label

                return label.run(words, os.environ)
            case "uninstall":
                from sidecar.commands import uninstall

                return uninstall.run(words, os.environ)
            case "release-finalizers":
                from sidecar.commands import release_finalizers

                return release_finalizers.run(words, os.environ)
            case "read-drbd" if not {"-h", "--help"}.intersection(words):
                from sidecar.failover import reader_io

                return reader_io.run(words)
            case "version":
                return _version(words)
            case "help" | "completion" | "__complete" | "read-drbd":
                return _tell(verb, words)
            case "":
                return _run([verb, *words])  # an empty value in a template becomes an empty word
            case _ if any(word.startswith("-") for word in words):
                return _run_despite(verb, words)
            case _:
                raise UsageError([_unknown(verb)])
    except UsageError as error:
        hint = f"Run `{program()} {verb} --help` for its flags." if verb in _WITH_FLAGS else f"Run `{program()} --help` for all flags."
        return _end("\n".join([*(f"{PROGRAM}: {message}" for message in error.messages), hint]), error.exit_code, verb)
    except Refused as error:
        return _end("\n".join(f"{PROGRAM}: {fault}" for fault in error.faults), error.exit_code, verb)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is told: another one ends what is left without a word
        return 130


def _ended_early(number: int, _: object) -> None:
    """A command that was cut off has not answered, and a script takes 0 for an answer. It ends as by SIGINT: what it has begun is told."""
    raise SystemExit(128 + number)


def _run(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # who is stopped before it has begun is stopped well
    parsed = parse(words, os.environ)
    match parsed:
        case ShowHelp():
            return _tell("help", [])
        case Parsed(config, warnings):
            gc.disable()  # what is imported stays, and to look through it again and again takes time; `process` enables it
            from sidecar import process
            from sidecar.observe import logs

            logs.setup("json" if config.logging_format == "json" else "text", config.verbosity)
            try:
                return process.run(config, warnings)
            except Exception as error:
                cause: BaseException = error
                while isinstance(cause, BaseExceptionGroup):
                    cause = cause.exceptions[0]
                logs.write_termination_log(f"{type(cause).__name__}: {cause}; see the log")
                raise
        case _:
            return _version([])


def _run_despite(verb: str, words: Sequence[str]) -> int:
    """Upstream ignores words that are no flags. If the flags cannot work either, the word is named: perhaps a command was meant."""
    try:
        return _run([verb, *words])
    except (UsageError, Refused):
        say_aside(f"{PROGRAM}: {_unknown(verb)}")
        raise


def _unknown(verb: str) -> str:
    meant = closest(verb, COMMANDS)
    return f"unknown command {verb!r}; " + (f"did you mean {meant}?" if meant else f"known are {', '.join(COMMANDS)}")


def _tell(verb: str, words: Sequence[str]) -> int:
    """What is made from the table of commands. A shell that asks may ask about anything, and nothing is wrong with that."""
    from sidecar.commands import completion, help

    if any(word in ("--help", "-h") for word in words) and verb != "__complete":
        words, verb = [verb], "help"
    match verb:
        case "help":
            said = help.asked(words)
        case "completion":
            said = completion.script(words)
        case _:
            said = completion.answer(words)
    show(said, end="")
    return 0


def _version(words: Sequence[str]) -> int:
    from sidecar.commands import version

    return version.run(words, os.environ)


def _end(text: str, code: int, verb: str) -> int:
    """Where the program was to run, and not a command of people in the same container, the kubelet is told why it does not."""
    say_aside(text)
    if verb not in COMMANDS[1:]:
        from sidecar.observe.logs import write_termination_log

        write_termination_log(text)
    return code
