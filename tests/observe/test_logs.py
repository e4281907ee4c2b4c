import io
import json
import logging
import os
import re
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import Fatal
from sidecar.observe import logs
from sidecar.observe.logs import V

# 21 November, 08:23:28.564675 wherever the test runs
WALL = time.mktime((2026, 11, 21, 8, 23, 28, 0, 0, -1)) + 0.564675
HEADER = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [^ ]+:\d+\] ")


@pytest.fixture(autouse=True)
def clean():
    yield
    logs.teardown()


def written(write, format="text", verbosity=0, *, wall=None, **more):
    stream = io.StringIO()
    logs.setup(format, verbosity, stream=stream, wall=wall, **more)
    try:
        write(logging.getLogger("sidecar.provisioning"))
    finally:
        logs.teardown()
    return stream.getvalue()


def record(level, message, *, name="sidecar.provisioning", error=None, line=137, **fields):
    """A record with a place, a time and a process that do not change."""
    made = logging.LogRecord(
        name, level, "/somewhere/sidecar/provisioning/controller.py", line, message, None, error and (type(error), error, None)
    )
    made.created, made.process, made.fields = WALL, 1, fields
    return made


GOLDEN = [
    (
        record(logging.INFO, "Volume created", claim="default/data", bytes=1073741824, seconds=0.25, ours=True, node=None),
        'I1121 08:23:28.564675       1 controller.py:137] "Volume created"'
        ' claim="default/data" bytes=1073741824 seconds=0.25 ours=true node=null',
        {"msg": "Volume created", "v": 0, "claim": "default/data", "bytes": 1073741824, "seconds": 0.25, "ours": True, "node": None},
    ),
    (
        record(V(5), "Request", request={"name": "pvc-1", "sizes": [1, 2]}),
        'I1121 08:23:28.564675       1 controller.py:137] "Request" request={"name":"pvc-1","sizes":[1,2]}',
        {"msg": "Request", "v": 5, "request": {"name": "pvc-1", "sizes": [1, 2]}},
    ),
    (
        record(logging.WARNING, "Driver is gone", socket='/run/"csi"'),
        'W1121 08:23:28.564675       1 controller.py:137] "Driver is gone" socket="/run/\\"csi\\""',
        {"msg": "Driver is gone", "v": 0, "severity": "warning", "socket": '/run/"csi"'},
    ),
    (
        record(logging.ERROR, "Cannot save", volume="pvc-1", err=Fatal("first\nsecond")),
        'E1121 08:23:28.564675       1 controller.py:137] "Cannot save" err="first\\nsecond" volume="pvc-1"',
        {"msg": "Cannot save", "volume": "pvc-1", "err": "first\nsecond"},
    ),
    (
        record(logging.CRITICAL, "The end", line=9),
        'F1121 08:23:28.564675       1 controller.py:9] "The end"',
        {"msg": "The end"},
    ),
    (
        record(logging.ERROR, "Task failed", name="asyncio", error=Fatal("foreseen")),
        'E1121 08:23:28.564675       1 controller.py:137] "Task failed" err="foreseen" logger="asyncio"',
        {"msg": "Task failed", "logger": "asyncio", "err": "foreseen"},
    ),
]


@pytest.mark.parametrize(("made", "line", "_fields"), GOLDEN)
def test_text_as_klog_writes_it(made, line, _fields):
    assert logs.TextFormatter().format(made) == line


@pytest.mark.parametrize(("made", "_line", "fields"), GOLDEN)
def test_json_with_klogs_keys(made, _line, fields):
    line = logs.JsonFormatter().format(made)
    place = {"ts": round(WALL * 1000, 3), "caller": f"controller.py:{made.lineno}"}
    assert json.loads(line) == place | fields
    assert list(json.loads(line))[:3] == ["ts", "caller", "msg"]


def test_a_field_cannot_change_what_the_line_says_of_itself():
    line = json.loads(logs.JsonFormatter().format(record(logging.ERROR, "Real", msg="forged", v=0, ts=1)))
    assert line == {"ts": round(WALL * 1000, 3), "caller": "controller.py:137", "msg": "Real", "msg_": "forged", "v_": 0, "ts_": 1}


@pytest.mark.parametrize("key", ["a b", 'a"', "a=b", "", "a\nI1121"])
def test_a_key_that_could_pass_for_something_else_is_quoted(key):
    line = logs.TextFormatter().format(record(logging.INFO, "m", **{key: 1}))
    assert line.isprintable()
    assert line.endswith('"=1')


fields = st.dictionaries(st.text(), st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.text()), max_size=4)


@given(st.text(), fields)
def test_any_message_and_fields_are_one_line_of_text(message, given_fields):
    made = record(logging.INFO, message)
    made.fields = given_fields
    line = logs.TextFormatter().format(made)
    assert line.isprintable()
    assert HEADER.match(line)


@given(st.text(), fields, st.sampled_from([logging.INFO, logging.WARNING, logging.ERROR]))
def test_any_message_and_fields_are_one_line_of_json(message, given_fields, level):
    made = record(level, message)
    made.fields = given_fields
    line = logs.JsonFormatter().format(made)
    assert line.isascii() and line.isprintable()
    assert json.loads(line)["msg"] == message
    assert ("v" in json.loads(line)) == (level < logging.ERROR)


def test_fields_that_were_put_on_the_record_itself_are_shown_too():
    text = written(lambda log: log.info("Crashed", extra={"loop": "claims", "attempt": 2}))
    assert text.endswith('"Crashed" loop="claims" attempt=2\n')


@pytest.mark.parametrize("bad", [None, 3, "text", ["a"]])
def test_fields_that_are_none_do_not_cost_the_line(bad):
    assert written(lambda log: log.info("m", extra={"fields": bad})).endswith('] "m"\n')


def test_the_traceback_of_a_bug_is_shown_and_cannot_pass_for_records():
    def bug(log):
        try:
            raise RuntimeError("boom\nE1121 08:23:28.564675       1 forged.py:1] \x1b[31m")
        except RuntimeError:
            log.exception("Handler crashed", extra={"fields": {"key": "a"}})

    first, *rest = written(bug).splitlines()
    assert re.search(r'"Handler crashed" err="RuntimeError: boom\\nE1121 .*" key="a"$', first)
    assert len(rest) >= 4
    assert all(line.startswith("\t") and line[1:].isprintable() for line in rest)
    assert "\tTraceback (most recent call last):" in rest
    whole = json.loads(written(bug, "json"))
    assert whole["stacktrace"].startswith("Traceback") and whole["err"].startswith("RuntimeError: boom")


def test_a_foreseen_exception_has_a_text_and_no_traceback():
    def foreseen(log):
        try:
            raise Fatal("no such socket; is the driver running?")
        except Fatal:
            log.exception("Cannot start")

    assert written(foreseen).endswith('"Cannot start" err="no such socket; is the driver running?"\n')
    assert "stacktrace" not in json.loads(written(foreseen, "json"))


def test_an_exception_without_a_text_of_its_own_does_not_cost_the_line():
    class Broken(Exception):
        def __str__(self):
            raise ValueError

    def bug(log):
        try:
            raise Broken
        except Broken:
            log.exception("Crashed")

    assert 'err="Broken: <unprintable Broken>"' in written(bug)


@pytest.mark.parametrize("verbosity", [0, 2, 5, 19])
def test_v_shows_up_to_its_number_and_no_more(verbosity):
    def write(log):
        for n in range(20):
            log.log(V(n), "m", extra={"fields": {"n": n}})
            assert log.isEnabledFor(V(n)) == (n <= verbosity)
        log.warning("w")
        log.error("e")

    lines = written(write, verbosity=verbosity).splitlines()
    assert [line[0] for line in lines] == ["I"] * (verbosity + 1) + ["W", "E"]


def test_libraries_speak_from_warning_on_and_in_the_same_format():
    def write(_):
        logging.getLogger("aiohttp.server").info("narration")
        logging.getLogger("aiohttp.server").warning("odd %s", "request\n")

    lines = written(write, verbosity=9).splitlines()
    assert len(lines) == 1
    assert lines[0].endswith('] "odd request\\n" logger="aiohttp.server"')


def test_arguments_that_do_not_fit_the_message_do_not_cost_the_line():
    made = record(logging.ERROR, "%d is no number", name="asyncio")
    made.args = ("x",)
    assert logs.TextFormatter().format(made).endswith('] "%d is no number" logger="asyncio"')


def test_pythons_own_warnings_are_log_lines():
    def write(_):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)

    text = written(write)
    assert HEADER.match(text) and "DeprecationWarning: old" in text and text.count("\n") == 1


def test_the_default_is_stderr(capsys):
    logs.setup()
    logging.getLogger("sidecar").info("hello")
    logs.teardown()
    captured = capsys.readouterr()
    assert captured.out == "" and re.search(rf' {os.getpid():7d} test_logs\.py:\d+\] "hello"\n$', captured.err)


def test_the_termination_log_is_replaced_and_cut(tmp_path):
    path = tmp_path / "termination-log"
    path.write_text("older and longer than what comes now")
    logs.write_termination_log("cannot go on: ü", str(path))
    assert path.read_text(encoding="utf-8") == "cannot go on: ü"
    logs.write_termination_log("ü" * 5000, str(path))
    assert path.read_text(encoding="utf-8") == "ü" * 2048


@pytest.mark.parametrize("place", ["missing", "missing/deeper", ".", "nul\0byte"])
def test_the_termination_log_is_not_made_up_and_never_raises(tmp_path, place):
    logs.write_termination_log("text \ud800", str(tmp_path / place))
    assert list(tmp_path.iterdir()) == []


def about(fields):
    return {"trace_id": "1" * 32, "span_id": "2" * 16} if fields.get("uid") == "u" else {}


def test_json_lines_say_the_trace_they_belong_to_and_text_lines_stay_as_they_are():
    def write(log):
        logs.name_traces(about)
        log.info("Claim provisioned", extra={"fields": {"uid": "u", "trace_id": "a field of that name"}})
        log.info("Another", extra={"fields": {"uid": "v"}})

    first, second = (json.loads(line) for line in written(write, "json").splitlines())
    assert (first["trace_id"], first["span_id"], first["trace_id_"]) == ("1" * 32, "2" * 16, "a field of that name")
    assert "trace_id" not in second and "span_id" not in second
    assert "1111" not in written(write)
