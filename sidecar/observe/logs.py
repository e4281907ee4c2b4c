"""Writes log lines to stderr as klog does, as text or as JSON.

The convention for all rooms: `logging.getLogger("sidecar.<room>")`, a constant message, and everything that varies in
`extra={"fields": {...}}`. klog's V(n) is the level `V(n)`; V(0) is INFO. One record is one line, whatever its values contain; only a
traceback adds lines, each indented so that none can be taken for a record.

A traceback is written for bugs only. The text of an expected failure (`sidecar.errors`) is enough.

    I1121 08:23:28.564675       1 controller.py:137] "Volume created" claim="default/data" seconds=0.21
    {"ts":1763713408564.675,"caller":"controller.py:137","msg":"Volume created","v":0,"claim":"default/data","seconds":0.21}
"""

import io
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Final, Literal, TextIO

from sidecar.errors import SidecarError
from sidecar.observe.sanitize import Plain, clipped, plain, quoted, to_json, visible

Format = Literal["text", "json"]
Wall = Callable[[], float]
Traces = Callable[[Mapping[str, object]], Mapping[str, str]]
"""From the fields of a line to those that say which trace it belongs to."""

OUR_ROOT: Final = "sidecar"
TERMINATION_LOG: Final = "/dev/termination-log"

# kubelet keeps no more of a container's termination message.
_TERMINATION_LIMIT: Final = 4096
_MOST_VERBOSE: Final = 19

# The keys of a JSON line that are not fields.
_RESERVED: Final = frozenset({"ts", "caller", "msg", "v", "severity", "stacktrace", "trace_id", "span_id", "trace_flags"})

# The attributes that every LogRecord has; all others came by `extra`.
_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "fields"}


def V(n: int) -> int:  # noqa: N802  klog's name for it
    """The stdlib level of verbosity n: `log.log(V(5), …)`. `-v=5` shows V(0) to V(5)."""
    return logging.INFO - min(max(n, 0), _MOST_VERBOSE)


def setup(
    format: Format = "text",
    verbosity: int = 0,
    *,
    stream: TextIO | None = None,
    wall: Wall | None = None,
) -> None:
    """Send all records of the process to one stream. A second call replaces what the first one set up.

    `wall` replaces the time of the records, for a simulation.
    """
    teardown()
    formatter = JsonFormatter(wall) if format == "json" else TextFormatter(wall)
    if stream is None and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the locale is: who collects logs does not know it
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(formatter)
    handler.setLevel(V(verbosity))
    root = logging.getLogger()
    root.addHandler(handler)
    # What libraries log at INFO helps only their authors.
    root.setLevel(logging.WARNING)
    logging.getLogger(OUR_ROOT).setLevel(V(verbosity))
    logging.captureWarnings(True)


def setup_for_people(verbosity: int, least: int) -> None:
    """Beside what a command says: without -v only what is at least so grave."""
    setup("text", verbosity)
    if not verbosity:
        logging.getLogger(OUR_ROOT).setLevel(least)


def name_traces(traces: Traces) -> None:
    """JSON lines say from now on which trace they belong to. To be called after `setup`."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler) and isinstance(handler.formatter, JsonFormatter):
            handler.formatter.traces = traces


def teardown() -> None:
    """Undo `setup`, if it was called."""
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if isinstance(handler, _Handler)]
    for handler in ours:
        root.removeHandler(handler)
    if ours:
        root.setLevel(logging.WARNING)
        logging.getLogger(OUR_ROOT).setLevel(logging.NOTSET)
        logging.captureWarnings(False)


def write_termination_log(text: str, path: str = TERMINATION_LOG) -> None:
    """Write the text where `kubectl describe pod` shows it. Failures are ignored, since the process is ending anyway."""
    cut = text.encode(errors="replace")[:_TERMINATION_LIMIT].decode(errors="ignore").encode()
    try:
        # Without O_CREAT: kubelet has created the file, and without kubelet nobody would read it.
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
        try:
            os.write(descriptor, cut)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        pass


class TextFormatter(logging.Formatter):
    """`Lmmdd hh:mm:ss.uuuuuu pid file:line] "msg" key=value`: text in quotes, everything else as JSON.

    The time is UTC wherever the container is, for the line does not say its zone, and is read beside those of other nodes.
    """

    def __init__(self, wall: Wall | None = None) -> None:
        super().__init__()
        self._wall = wall

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        if record.levelno >= logging.ERROR and "err" in fields:
            fields = {"err": fields["err"]} | fields  # as klog orders them
        shown = "".join(f" {_key(key)}={_text(value)}" for key, value in fields.items())
        return f"{self._header(record)}] {quoted(_message(record))}{shown}{_indented(_traceback(record))}"

    def _header(self, record: logging.LogRecord) -> str:
        micros = round(_when(record, self._wall) * 1_000_000)
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(micros // 1_000_000))
        return f"{_letter(record.levelno)}{stamp}.{micros % 1_000_000:06d} {record.process or 0:7d} {_caller(record)}"


class JsonFormatter(logging.Formatter):
    """klog's keys: ts in Unix milliseconds, caller, msg, v. Errors have no v, by which readers of klog recognise them.

    klog's JSON cannot show that a line is a warning; here such a line has a `severity`.
    """

    def __init__(self, wall: Wall | None = None) -> None:
        super().__init__()
        self._wall = wall
        self.traces: Traces | None = None

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Plain] = {
            "ts": round(_when(record, self._wall) * 1000, 3),
            "caller": _caller(record),
            "msg": clipped(_message(record)),
        }
        if record.levelno < logging.ERROR:
            line["v"] = max(0, logging.INFO - record.levelno)
            if record.levelno >= logging.WARNING:
                line["severity"] = "warning"
        fields = _fields(record)
        if self.traces is not None:
            line |= self.traces(fields)
        for key, value in fields.items():
            # A field must not replace one of the line's own keys.
            line[f"{key}_" if key in _RESERVED else key] = plain(value)
        if trace := _traceback(record):
            line["stacktrace"] = clipped(trace)
        return to_json(line)


class _Handler(logging.StreamHandler[TextIO]):
    """The stream handler that `setup` recognises as its own."""


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """`fields`, and for code that does not follow the convention, whatever `extra` put on the record."""
    shown: dict[str, object] = {}
    if not _is_ours(record):
        shown["logger"] = record.name  # base_events.py:1771 alone does not show which library it is
    else:
        had = vars(record)
        if more := had.keys() - _OWN_ATTRIBUTES:
            shown |= {key: had[key] for key in had if key in more}
    given = getattr(record, "fields", None)
    if isinstance(given, Mapping):
        shown |= {str(key): value for key, value in given.items()}
    if (error := _exception(record)) is not None and "err" not in shown:
        shown["err"] = str(error) if isinstance(error, SidecarError) else f"{type(error).__name__}: {plain(error)}"
    return shown


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == OUR_ROOT or record.name.startswith(f"{OUR_ROOT}.")


def _exception(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _traceback(record: logging.LogRecord) -> str:
    error = _exception(record)
    if error is None or isinstance(error, SidecarError):
        return ""
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception as failure:  # noqa: BLE001  an exception's own __str__ may raise anything
        return f"<no traceback: {type(failure).__name__}>"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  a library's arguments may not fit its message, and the line must not be lost
        return str(plain(record.msg))


def _when(record: logging.LogRecord, wall: Wall | None) -> float:
    return record.created if wall is None else wall()


def _caller(record: logging.LogRecord) -> str:
    return f"{visible(record.filename)}:{record.lineno}"


def _letter(level: int) -> str:
    if level >= logging.CRITICAL:
        return "F"
    if level >= logging.ERROR:
        return "E"
    return "W" if level >= logging.WARNING else "I"


def _key(key: str) -> str:
    """The key, quoted if it could be taken for something else."""
    return key if key and key.isprintable() and not set(key) & set(' ="') else quoted(key)


def _text(value: object) -> str:
    shown = plain(value)
    return quoted(shown) if isinstance(shown, str) else to_json(shown)


def _indented(trace: str) -> str:
    return "".join(f"\n\t{visible(line)}" for line in trace.splitlines())
