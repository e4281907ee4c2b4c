import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kube import wire
from sidecar.kube.api import CAPACITIES, CLAIMS, PODS, SECRETS, VOLUMES
from sidecar.kube.errors import ApiError, BadEvent, BadRequest, Conflict, Gone, TooManyRequests, Unavailable, VersionTooLarge

DEEP = b'{"a":' * 100_000
ODD_CAUSES = (b'{"details":{"causes":5}}', b'{"details":{"causes":{"reason":"DisruptionBudget"}}}')


def test_paths_by_group_namespace_name_and_subresource() -> None:
    assert wire.path_of(CLAIMS) == "/api/v1/persistentvolumeclaims"
    assert wire.path_of(CLAIMS, namespace="ns", name="a") == "/api/v1/namespaces/ns/persistentvolumeclaims/a"
    assert wire.path_of(VOLUMES, namespace="ignored", name="pv") == "/api/v1/persistentvolumes/pv"
    assert wire.path_of(CAPACITIES, namespace="ns") == "/apis/storage.k8s.io/v1/namespaces/ns/csistoragecapacities"
    assert wire.path_of(PODS, namespace="ns", name="p", subresource="eviction") == "/api/v1/namespaces/ns/pods/p/eviction"


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert wire.path_of(VOLUMES, name="../nodes/x?y") == "/api/v1/persistentvolumes/..%2Fnodes%2Fx%3Fy"


def test_query_leaves_out_what_says_nothing() -> None:
    assert wire.query_of(limit=500, continue_token="", label_selector="a=b") == {"limit": "500", "labelSelector": "a=b"}
    assert wire.query_of(continue_token="xyz") == {"continue": "xyz"}


def test_requests_are_named_for_people() -> None:
    assert wire.request_text("get", CLAIMS, namespace="ns", name="a") == "get persistentvolumeclaims ns/a"
    assert wire.request_text("list", CAPACITIES) == "list csistoragecapacities.storage.k8s.io"
    assert wire.request_text("create", PODS, namespace="ns", name="p", subresource="eviction") == "create pods/eviction ns/p"


def test_bytes_are_sent_as_they_are() -> None:
    assert wire.encode(b'{ "a":1}') == b'{ "a":1}'
    assert wire.encode({"a": [1]}) == b'{"a":[1]}'


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("-3", 0.0),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("31536000", 60.0),
        ("9" * 309, 60.0),
        ("9" * 5000, None),
        ("Fri, 31 Dec 2036 23:59:59 GMT", 60.0),
        ("Fri, 31 Dec 9999 23:59:59 -1200", 60.0),
        ("Fri, 31 Dec 99999999999 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert wire.retry_after_seconds(header, wall=lambda: 1000.0) == seconds


@given(st.text())
def test_no_retry_after_is_an_accident(header: str) -> None:
    seconds = wire.retry_after_seconds(header, wall=lambda: 0.0)
    assert seconds is None or seconds >= 0


def test_a_refusal_says_what_the_server_said() -> None:
    raw = b'{"message":"it changed","reason":"Conflict"}'
    error = wire.refusal(409, raw, what="update persistentvolumeclaims ns/a", retry_after=None)
    assert isinstance(error, Conflict)
    assert str(error) == "update persistentvolumeclaims ns/a: it changed"


@pytest.mark.parametrize(
    "raw", [b"<html>\n  <b>no</b></html>", b"[]", b'"text"', b"\xff\xfe", b"", DEEP, b'{"message":[1],"reason":{},"details":3}']
)
def test_a_refusal_without_a_status_object_is_one_too(raw: bytes) -> None:
    error = wire.refusal(503, raw, what="list nodes", retry_after=None)
    assert isinstance(error, Unavailable)
    assert str(error).startswith("list nodes: ")
    assert "\n" not in str(error)


def test_a_long_page_is_quoted_shortly() -> None:
    assert len(str(wire.refusal(502, b"x" * 100_000, what="get nodes", retry_after=None))) < 300


@pytest.mark.parametrize(
    "line", [b"<html>\n", b"{", b"[]\n", b"1\n", b"{}\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":{}}\n', DEEP]
)
def test_garbage_in_a_watch_is_unavailable(line: bytes) -> None:
    with pytest.raises(BadEvent, match=r"^watch x: "):
        wire.watch_event(line, what="watch x")


def test_an_error_event_is_raised_as_what_it_carries() -> None:
    with pytest.raises(Gone, match="too old"):
        wire.watch_event(b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}', what="watch x")
    with pytest.raises(BadEvent, match="etcd is gone"):
        wire.watch_event(b'{"type":"ERROR","object":{"message":"etcd is gone"}}', what="watch x")
    with pytest.raises(TooManyRequests):
        wire.watch_event(b'{"type":"ERROR","object":{"code":429}}', what="watch x")


@pytest.mark.parametrize("reason", ["Expired", "Gone"])
@pytest.mark.parametrize("code", ["", '"code":"410",', '"code":true,'])
def test_a_version_that_is_gone_is_known_by_its_reason_too(reason: str, code: str) -> None:
    with pytest.raises(Gone, match="too old"):
        wire.watch_event(f'{{"type":"ERROR","object":{{{code}"reason":"{reason}","message":"too old"}}}}'.encode(), what="watch x")


def test_a_version_that_the_server_has_not_reached_is_told_from_one_that_is_unwell() -> None:
    raw = b'{"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]},"message":"Too large resource version"}'
    assert type(wire.refusal(504, raw, what="watch x", retry_after=1.0)) is VersionTooLarge
    assert type(wire.refusal(504, b'{"reason":"Timeout"}', what="watch x", retry_after=1.0)) is Unavailable


@pytest.mark.parametrize("version", ['""', "null", "7", "{}"])
def test_a_version_that_is_none_is_never_gone_on_from(version: str) -> None:
    with pytest.raises(BadEvent, match="without a resourceVersion"):
        wire.watch_event(f'{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":{version}}}}}}}'.encode(), what="watch x")


def test_an_answer_too_deep_to_follow_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="get x: the answer is not a JSON object"):
        wire.decode(DEEP, what="get x")


@given(st.binary())
def test_no_line_is_an_accident(line: bytes) -> None:
    try:
        wire.watch_event(line, what="watch x")
    except ApiError:
        pass


def test_a_disruption_budget_is_told_from_a_busy_server() -> None:
    assert wire.is_disruption_budget(b'{"details":{"causes":[{"reason":"DisruptionBudget","message":"needs 1"}]}}')
    for raw in (b"too many", b"{}", b'{"details":{}}', b'{"details":{"causes":[{"reason":"Other"}, 3]}}', b'{"details":3}', *ODD_CAUSES):
        assert not wire.is_disruption_budget(raw)


def test_half_an_answer_about_a_secret_is_not_quoted() -> None:
    half = b'{"kind":"Secret","data":{"password":"Y2FuYXJ5'
    with pytest.raises(Unavailable) as caught:
        wire.decode(half, what=wire.request_text("get", SECRETS, namespace="ns", name="s"))
    assert "Y2FuYXJ5" not in str(caught.value) and "secrets ns/s" in str(caught.value)
    with pytest.raises(Unavailable, match="Y2FuYXJ5"):
        wire.decode(half, what=wire.request_text("get", VOLUMES, name="pv"))


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_leads_to_another_address_is_refused(name: str) -> None:
    for options in ({"namespace": "ns", "name": name}, {"namespace": name, "name": "s"}):
        with pytest.raises(BadRequest, match="cannot be an object's name"):
            wire.path_of(SECRETS, **options)
