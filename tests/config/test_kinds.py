"""Go's texts become the values Go reads, everything else becomes a UsageError."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.config import kinds
from sidecar.config.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("10s", 10),
        ("1m30s", 90),
        ("1h1m1s", 3661),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("300ms", 0.3),
        ("1us", 1e-6),
        ("1\u00b5s", 1e-6),
        ("1\u03bcs", 1e-6),
        ("1ns", 1e-9),
        ("-5s", -5),
        ("+5s", 5),
        ("0.4ns", 0),
        ("0000000000000000000000001s", 1),
        ("0.33333333333333333333333333h", 1200),
        ("2562047h47m16.854775807s", 2**63 / 10**9),
        ("-9223372036854775808ns", -(2**63) / 10**9),
    ],
)
def test_durations_of_go(text, seconds):
    assert kinds.read_duration(text) == pytest.approx(seconds, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "s",
        ".",
        ".s",
        "-.s",
        "10",
        "1.5",
        "1d",
        "1m30",
        "1 s",
        " 1s",
        "1s ",
        "1s\n",
        "--1s",
        "1S",
        "1e3s",
        "0x1s",
        "1_0s",
        "٣s",
        "00",
        "9223372036854775808ns",
        "-9223372036854775809ns",
        "2562048h",
        "9" * 5000 + "h",
    ],
)
def test_what_go_does_not_take_for_a_duration(text):
    with pytest.raises(UsageError):
        kinds.read_duration(text)


def test_a_duration_without_unit_is_told_which_one_was_probably_meant():
    with pytest.raises(UsageError, match=r'its unit is missing, did you mean "10s"\?'):
        kinds.read_duration("10")


READERS = (kinds.read_duration, kinds.read_int, kinds.read_uint, kinds.read_level, kinds.read_float, kinds.read_float32, kinds.read_bool)


@pytest.mark.parametrize("read", [*READERS, kinds.read_address, kinds.split_address], ids=lambda read: read.__name__)
@given(text=st.text() | st.text("0123456789+-._exXbBoOpPsmhnuµ:[]%aAfF", max_size=12))
@example(text="0x1p999999")
@example(text="1e999")
@example(text="9" * 5000)
@example(text="1." + "9" * 5000 + "h")
@example(text="[::1]:80")
@example(text="[::1]:http")
def test_readers_raise_nothing_but_usage_errors(read, text):
    try:
        value = read(text)
    except UsageError as refused:
        assert refused.messages
    else:
        assert not isinstance(value, float) or not math.isnan(value)


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_durations_survive_being_shown(nanoseconds):
    seconds = nanoseconds / 10**9
    assert kinds.read_duration(kinds.show_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1e-9, "1ns"),
        (1.5e-6, "1.5us"),
        (0.3, "300ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (60, "1m0s"),
        (300, "5m0s"),
        (7200, "2h0m0s"),
        (-90, "-1m30s"),
    ],
)
def test_durations_look_as_in_go(seconds, text):
    assert kinds.show_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("0x10", 16),
        ("-0X1f", -31),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("00", 0),
        ("1_000", 1000),
        ("0x_ff", 255),
        ("0_7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_whole_numbers_of_go(text, value):
    assert kinds.read_int(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "--1",
        "08",
        "1_",
        "_1",
        "1__0",
        "0x",
        "0b2",
        "1.0",
        "1e3",
        " 1",
        "1\n",
        "٣",
        "9223372036854775808",
        "-9223372036854775809",
    ],
)
def test_what_go_does_not_take_for_a_whole_number(text):
    with pytest.raises(UsageError):
        kinds.read_int(text)


@pytest.mark.parametrize("text", ["-1", "+1", "-0", "18446744073709551616"])
def test_unsigned_numbers_take_no_sign_and_64_bits(text):
    with pytest.raises(UsageError):
        kinds.read_uint(text)
    assert kinds.read_uint("18446744073709551615") == 2**64 - 1


@pytest.mark.parametrize("text", ["", "-1", "0x5", "2147483648", "h", "vv", "1_0"])
def test_log_levels_are_plain_decimals_of_31_bits(text):
    with pytest.raises(UsageError):
        kinds.read_level(text)
    assert kinds.read_level("007") == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e2", 100),
        (".5", 0.5),
        ("5.", 5),
        ("-1", -1),
        ("+2.5E-1", 0.25),
        ("0x1p-2", 0.25),
        ("0x1.8p1", 3),
        ("1_0.5", 10.5),
        ("0x_1p1_0", 1024),
        ("1e-400", 0),
        ("inf", math.inf),
        ("+Inf", math.inf),
        ("-INFINITY", -math.inf),
    ],
)
def test_numbers_of_go(text, value):
    assert kinds.read_float(text) == value


@pytest.mark.parametrize("text", ["", "infi", "nan", "1e999", "-1e999", "0x1p99999", "0x10", "1_", "1__0", "1,5", "five", "1 ", "."])
def test_what_is_no_number(text):
    with pytest.raises(UsageError):
        kinds.read_float(text)


def test_small_floats_are_32_bits_wide():
    assert kinds.read_float32("3e38") == 3e38
    assert kinds.read_float32("inf") == math.inf
    with pytest.raises(UsageError, match="32-bit"):
        kinds.read_float32("1e39")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_being_shown(value):
    assert kinds.read_float(kinds.show_float(value)) == value


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_in_all_its_spellings(text):
    assert kinds.read_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false_in_all_its_spellings(text):
    assert kinds.read_bool(text) is False


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", "2", " true"])
def test_what_is_no_boolean(text):
    with pytest.raises(UsageError, match="write true or false"):
        kinds.read_bool(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8080", "", 8080),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:80", "::1", 80),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        (":http", "", 80),
        ("[::1]:https", "::1", 443),
        (":HTTP", "", 80),
        (":domain", "", 53),
        ("host:imap2", "host", 143),
        (":08080", "", 8080),
        (":+8080", "", 8080),
        (":", "", 0),
        ("localhost:", "localhost", 0),
        ("[::1]:", "::1", 0),
    ],
)
def test_listen_addresses(text, host, port):
    assert kinds.split_address(text) == (host, port)
    assert kinds.split_address(kinds.read_address(text)) == (host, port)
    assert kinds.read_address(text).endswith(f":{port}")


@pytest.mark.parametrize(
    "text",
    [
        "8080",
        ":metrics",
        ":httpx",
        ":65536",
        ":999999999999",
        ":+",
        ":-1",
        "::1:80",
        "[::1]",
        "http://host:80",
        "host:80/metrics",
        " :80",
        ":80\n",
        ":٨٠",
    ],
)
def test_what_is_no_listen_address(text):
    with pytest.raises(UsageError, match="is not host:port"):
        kinds.read_address(text)
