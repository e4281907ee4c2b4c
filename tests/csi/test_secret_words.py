"""What a driver says of the secrets that it was given, in whatever form, is shown to nobody."""

import base64
import html
import json
import re
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi_proto import csi_pb2 as pb
from sidecar.csi.redact import STRIPPED
from sidecar.csi.secret_words import LONGEST_TEXT, MOST_LINES, NOT_SHOWN, SHORTEST, without_secrets

SECRET = "pä/ss <w>+\"'&%\\ord"
FORMS = {
    "as it is": SECRET,
    "in JSON": json.dumps(SECRET),
    "in JSON with all letters": json.dumps(SECRET, ensure_ascii=False),
    "in JSON of Go": json.dumps(SECRET, ensure_ascii=False).replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"),
    "in Python": repr(SECRET),
    "in a shell": "'" + SECRET.replace("'", "'\\''") + "'",
    "in HTML": html.escape(SECRET),
    "in the path of a URL": quote(SECRET),
    "in a part of a path": quote(SECRET, safe=""),
    "in a query": quote_plus(SECRET),
    "in a query with small digits": re.sub("%..", lambda found: found[0].lower(), quote_plus(SECRET)),
    "in base64": base64.b64encode(SECRET.encode()).decode(),
    "in base64 of URLs": base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    "in hexadecimal": SECRET.encode().hex(),
    "in hexadecimal capitals": SECRET.encode().hex().upper(),
}


def said(text: str, **secrets: str) -> str:
    return without_secrets(text, pb.CreateVolumeRequest(name="pvc-1", secrets=secrets))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_secret_is_not_shown(form: str) -> None:
    shown = said(f"login --password={form} failed: exit status 1", password=SECRET, user="somebody")
    assert shown.replace(STRIPPED, "").strip("'\"").replace("'", "").replace('"', "") == "login --password= failed: exit status 1"


@pytest.mark.parametrize("user", ["u", "us", "use", "user"])
def test_nor_in_what_a_user_and_his_password_are_in_base64(user: str) -> None:
    """Two characters at each end hold bits of its neighbours."""
    encoded = base64.b64encode(f"{user}:{SECRET}@host".encode()).decode()
    shown = said(f"Authorization: Basic {encoded}", password=SECRET)
    assert STRIPPED in shown
    assert len(shown.replace(STRIPPED, "")) <= len("Authorization: Basic ") + len(base64.b64encode(f"{user}:@host".encode())) + 4


def test_each_request_with_secrets_counts() -> None:
    assert without_secrets("bad canary", pb.DeleteVolumeRequest(secrets={"a": "canary"})) == f"bad {STRIPPED}"
    assert without_secrets("bad canary", pb.GetCapacityRequest(parameters={"a": "canary"})) == "bad canary"
    assert without_secrets("bad canary", pb.ProbeRequest()) == "bad canary"


def test_the_lines_of_a_key_are_not_shown_one_by_one() -> None:
    key = "-----BEGIN KEY-----\n  MIIEow\r\nIBAAKC\n-----END KEY-----\n"
    assert said("bad line MIIEow, and IBAAKC", key=key) == f"bad line {STRIPPED}, and {STRIPPED}"
    assert said("no " + key, key=key) == f"no {STRIPPED}"
    assert said("no " + key.strip(), key=key) == f"no {STRIPPED}"
    assert said("no " + json.dumps(key), key=key) == f'no "{STRIPPED}"'


def test_what_is_too_short_to_be_a_secret_stays() -> None:
    assert said("port 80 of tcp is true", port="80", kind="tcp", on=" y \n") == "port 80 of tcp is true"
    assert said("code abcd", code="abcd") == f"code {STRIPPED}" and len("abcd") == SHORTEST


def test_of_two_secrets_the_longer_is_taken_and_overlapping_ones_are_one() -> None:
    assert said("x canary-2 y", a="canary", b="canary-2") == f"x {STRIPPED} y"
    assert said("x canary-2 y", a="canary", b="ary-2") == f"x {STRIPPED} y"


def test_a_long_text_is_cut_and_no_secret_with_it() -> None:
    text = "e" * (LONGEST_TEXT - 3) + "canary" + "e" * 100
    shown = said(text, a="canary")
    assert shown == "e" * (LONGEST_TEXT - 3) + STRIPPED + "… (100 more characters)"
    assert said(text) == text


def test_it_comes_to_an_end_whatever_the_secret_and_the_text() -> None:
    """Seen by the whole run, were it to take as long as the square of these lengths."""
    assert said("a" * 2**20, key="\n".join("a" * n for n in range(2 * MOST_LINES))) == NOT_SHOWN
    said("a" * 2**20, key="\n".join("a" * (LONGEST_TEXT + n) for n in range(8)))
    said("abc " * 2**18, **{f"k{n}": f"canary-{n}" for n in range(MOST_LINES)})


@given(st.dictionaries(st.text(min_size=1), st.text()), st.lists(st.text()))
def test_nothing_is_left_of_it_and_nothing_is_raised(secrets: Mapping[str, str], between: list[str]) -> None:
    words = [value for value in secrets.values() if len(value.strip()) >= SHORTEST]
    text = " ".join([*between, *words])
    shown = without_secrets(text, pb.DeleteVolumeRequest(secrets=dict(secrets)))
    assert not any(word in shown for word in words if word not in STRIPPED)
