"""What is read of the environment: as the OpenTelemetry specification says, and without a value in any remark."""

import pytest

from sidecar import settings
from sidecar.tracing.sampling import Sampler
from sidecar.tracing.variables import Off, Settings, read

GENERAL, OWN = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HERE = {GENERAL: "http://collector:4318"}


def found(**environ: str) -> tuple[Settings, list[str]]:
    given, remarks = read({**HERE, **environ})
    assert isinstance(given, Settings)
    return given, remarks


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({GENERAL: "http://c:4318"}, "http://c:4318/v1/traces"),
        ({GENERAL: "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({GENERAL: "https://c/otlp"}, "https://c/otlp/v1/traces"),
        ({GENERAL: "https://c/otlp/?key=1"}, "https://c/otlp/v1/traces?key=1"),
        ({GENERAL: "http://[::1]:4318"}, "http://[::1]:4318/v1/traces"),
        ({OWN: "http://c:4318"}, "http://c:4318/"),
        ({OWN: "http://c:4318/own"}, "http://c:4318/own"),
        ({OWN: "http://c:4318/own", GENERAL: "http://other"}, "http://c:4318/own"),
        ({OWN: "  ", GENERAL: "http://c:4318"}, "http://c:4318/v1/traces"),
    ],
)
def test_where_spans_go(environ: dict[str, str], url: str) -> None:
    given, remarks = read(environ)
    assert isinstance(given, Settings)
    assert (given.url, remarks) == (url, [])


@pytest.mark.parametrize(
    "environ",
    [
        {GENERAL: "collector:4318"},
        {GENERAL: "grpc://s3cret:4317"},
        {GENERAL: "http://"},
        {GENERAL: "http://c:s3cret"},
        {GENERAL: "http://c:99999"},
        {GENERAL: "http://user:s3cret@c:4318"},
        {GENERAL: "http://c/s3cret with spaces"},
        {GENERAL: "http://c/s3cret\r\nHost: other"},
        {GENERAL: "http://[s3cret"},
        {**HERE, "OTEL_TRACES_EXPORTER": "s3cret"},
        {**HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {**HERE, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "s3cret", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
    ],
)
def test_what_cannot_be_used_is_off_with_one_reason(environ: dict[str, str]) -> None:
    given, remarks = read(environ)
    assert isinstance(given, Off)
    assert "OTEL_" in given.why and "s3cret" not in given.why and "\n" not in given.why
    assert remarks == []


@pytest.mark.parametrize("environ", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_what_is_switched_off_is_off_without_a_word(environ: dict[str, str]) -> None:
    assert read({**HERE, **environ}) == (Off(), [])


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({GENERAL: ""}, False),
        ({GENERAL: " "}, False),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "otlp"}, False),
        (HERE, True),
        ({OWN: "http://c"}, True),
        ({**HERE, "OTEL_SDK_DISABLED": "True"}, False),
        ({**HERE, "OTEL_SDK_DISABLED": "false"}, True),
        ({**HERE, "OTEL_SDK_DISABLED": "1"}, True),
    ],
)
def test_without_an_endpoint_nothing_of_this_room_is_asked(environ: dict[str, str], wanted: bool) -> None:
    assert settings.traces(environ) is wanted


@pytest.mark.parametrize(
    ("environ", "sampler"),
    [
        ({}, Sampler(1.0, True)),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, Sampler(0.0, False)),
        ({"OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "0.5"}, Sampler(1.0, False)),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, Sampler(0.25, False)),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, Sampler(1.0, False)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, Sampler(0.0, True)),
    ],
)
def test_the_sampler(environ: dict[str, str], sampler: Sampler) -> None:
    given, remarks = found(**environ)
    assert (given.sampler, remarks) == (sampler, [])


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_SAMPLER": "s3cret"},
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "s3cret"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "s3cret"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "a=s3cret%0d%0aHost: other"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "a b=s3cret"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "Content-Length=5"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "a=s3cr%C3%A9t"},
        {"OTEL_RESOURCE_ATTRIBUTES": "s3cret"},
        {"OTEL_RESOURCE_ATTRIBUTES": "=s3cret"},
        {"OTEL_EXPORTER_OTLP_TIMEOUT": "s3cret"},
        {"OTEL_EXPORTER_OTLP_TIMEOUT": "0"},
        {"OTEL_EXPORTER_OTLP_TIMEOUT": "inf"},
        {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "1e9"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "1000000000000"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "11"},
        {"OTEL_SPAN_EVENT_COUNT_LIMIT": "s3cret"},
        {"OTEL_SDK_DISABLED": "s3cret"},
        {"OTEL_TRACES_EXPORTER": "otlp,s3cret"},
    ],
)
def test_what_has_no_effect_is_told_and_the_rest_holds(environ: dict[str, str]) -> None:
    given, remarks = found(**environ)
    assert len(remarks) == 1
    assert any(name in remarks[0] for name in environ) and "s3cret" not in remarks[0] and "\n" not in remarks[0]
    assert given.sampler == Sampler(1.0, environ.get("OTEL_TRACES_SAMPLER") != "traceidratio")
    assert (given.headers, given.resource, given.timeout) == ((), (), 10.0)
    assert given.bounds.batch <= given.bounds.spans <= 2048


def test_variables_of_other_signals_and_tools_are_none_of_ours() -> None:
    environ = {"OTEL_METRICS_EXPORTER": "console", "OTEL_LOGS_EXPORTER": "x", "OTEL_PYTHON_LOG_LEVEL": "x", "OTEL_POD_UID": "x"}
    assert found(**environ)[1] == []


def test_headers_are_decoded_and_never_shown() -> None:
    given, remarks = found(
        OTEL_EXPORTER_OTLP_HEADERS=" authorization=Bearer%20s3cret , x-scope = a=b,", OTEL_EXPORTER_OTLP_TRACES_HEADERS=" "
    )
    assert given.headers == (("authorization", "Bearer s3cret"), ("x-scope", "a=b"))
    assert remarks == []
    assert "s3cret" not in repr(given) + str(given)


def test_what_is_for_traces_alone_wins() -> None:
    given, _ = found(
        OTEL_EXPORTER_OTLP_HEADERS="a=1",
        OTEL_EXPORTER_OTLP_TRACES_HEADERS="b=2",
        OTEL_EXPORTER_OTLP_TIMEOUT="1000",
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="2500",
        OTEL_EXPORTER_OTLP_CERTIFICATE="/general",
        OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE="/own",
    )
    assert (given.headers, given.timeout, given.certificate) == ((("b", "2"),), 2.5, "/own")


def test_the_name_of_the_service() -> None:
    assert found(OTEL_RESOURCE_ATTRIBUTES="service.name=a,team=b%2Cc")[0].service == "a"
    given, _ = found(OTEL_RESOURCE_ATTRIBUTES="service.name=a,team=b%2Cc", OTEL_SERVICE_NAME="d")
    assert (given.service, dict(given.resource)["team"]) == ("d", "b,c")


def test_of_the_address_a_query_is_not_logged() -> None:
    assert found(**{OWN: "https://c/v1?key=s3cret"})[0].where == "https://c/v1"


def test_parents_are_read_as_the_propagators_say() -> None:
    assert found()[0].reads_parents
    assert found(OTEL_PROPAGATORS="baggage, tracecontext")[0].reads_parents
    assert not found(OTEL_PROPAGATORS="b3")[0].reads_parents
    assert not found(OTEL_PROPAGATORS="none")[0].reads_parents
