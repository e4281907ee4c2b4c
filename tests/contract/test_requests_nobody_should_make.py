"""Bad requests, sent raw: what cannot be read, what does not exist, what is of the wrong type. Code and reason are the real server's."""

import http.client
import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.conftest import Server

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
THERE = f"{MAPS}/there"
NONE = f"{MAPS}/none"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
VOLUMES = "/api/v1/persistentvolumes"
PODS = "/api/v1/namespaces/default/pods"
NO_STATUS = None
"""Instead of a reason: the answer is plain text."""


@dataclass
class Client:
    """One connection, which a test that sends hundreds of requests uses for all of them."""

    connection: http.client.HTTPSConnection
    token: str

    def send(self, method: str, path: str, body: Any = None, *, content: str = JSON, **headers: str) -> tuple[int, str | None]:
        """Status and reason. A body that is no bytes is made JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {self.token}", "Accept": JSON, "Content-Type": content} | headers
        given = {key: value for key, value in given.items() if value}
        try:
            self.connection.request(method, path, body=data, headers=given)
            response = self.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.connection.close()  # an idle connection may have been closed behind our back
            self.connection.request(method, path, body=data, headers=given)
            response = self.connection.getresponse()
        raw = response.read()
        if "json" not in (response.getheader("Content-Type") or ""):
            return response.status, NO_STATUS
        answer = json.loads(raw)
        if response.status >= 400:
            assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", response.status)
            assert answer["message"]
        return response.status, answer.get("reason", "")


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    config = json.loads(server.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    place = urlsplit(cluster["server"])
    connection = http.client.HTTPSConnection(
        place.hostname or "", place.port, context=ssl.create_default_context(cadata=authority), timeout=30
    )
    client = Client(connection, config["users"][0]["user"]["token"])
    client.send("POST", MAPS, {"metadata": {"name": "there"}, "data": {"x": "1"}})
    yield client
    connection.close()


@dataclass
class Case:
    name: str
    method: str
    path: str
    body: Any = None
    content: str = JSON
    status: int = 400
    reason: str | None = "BadRequest"
    headers: dict[str, str] = field(default_factory=dict)


def _configmap(**meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bad", **meta}}


UNREADABLE = [
    Case("half an object", "POST", MAPS, b'{"a":'),
    Case("no body", "POST", MAPS, b""),
    Case("a list", "POST", MAPS, []),
    Case("a string", "POST", MAPS, "x"),
    Case("a number", "POST", MAPS, 5),
    Case("NaN", "POST", MAPS, b'{"metadata":{"name":"nan"},"data":{"a":NaN}}'),
    Case("two objects", "POST", MAPS, b'{"metadata":{"name":"td"}}{"a":1}'),
    Case("deeply nested", "POST", MAPS, b"[" * 20_000),
    Case("protobuf that is none", "POST", MAPS, b"xx", "application/vnd.kubernetes.protobuf"),
    Case("yaml that is none", "POST", MAPS, b"a: [", "application/yaml"),
    Case("plain text", "POST", MAPS, _configmap(), "text/plain", 415, "UnsupportedMediaType"),
    Case("a form", "POST", MAPS, _configmap(), "application/x-www-form-urlencoded", 415, "UnsupportedMediaType"),
    Case("no content type, which is json", "POST", MAPS, b"{", ""),
    Case("text that answers may be", "GET", MAPS, status=406, reason="NotAcceptable", headers={"Accept": "text/plain"}),
    Case("html of the version", "GET", "/version", status=406, reason="NotAcceptable", headers={"Accept": "text/html"}),
    Case("a body without end", "POST", MAPS, b'{"data":{"a":"' + b"x" * 3_300_000 + b'"}}', status=413, reason="RequestEntityTooLarge"),
    Case("more than a config map holds", "POST", MAPS, _configmap() | {"data": {"a": "x" * 1_700_000}}, status=422, reason="Invalid"),
    Case("half a merge patch", "PATCH", THERE, b'{"a"', MERGE),
    Case("half a json patch", "PATCH", THERE, b'{"a"', JSON_PATCH),
    Case("half a strategic patch", "PATCH", THERE, b'{"a"', STRATEGIC),
    Case("an object as json patch", "PATCH", THERE, {"a": 1}, JSON_PATCH),
    Case("a list as merge patch", "PATCH", THERE, [], MERGE),
    Case("a list as strategic patch", "PATCH", THERE, [], STRATEGIC),
    Case("a patch of no type", "PATCH", THERE, {}, "", 415, "UnsupportedMediaType"),
    Case("a patch as plain json", "PATCH", THERE, {}, JSON, 415, "UnsupportedMediaType"),
    Case("half delete options", "DELETE", THERE, b'{"a'),
    Case("delete options as text", "DELETE", NONE, b"xx", "text/plain", 415, "UnsupportedMediaType"),
    Case("delete options as a list", "DELETE", NONE, []),
]
NOWHERE = [
    Case("no such path", "GET", "/foo", status=404, reason=NO_STATUS),
    Case("a double slash", "GET", "//api/v1", status=404, reason=NO_STATUS),
    Case("no such group", "GET", "/apis/nobody.example/v1/things", status=404, reason=NO_STATUS),
    Case("no such group itself", "GET", "/apis/nobody.example", status=404, reason=NO_STATUS),
    Case("no such version", "GET", "/api/v2", status=404, reason="NotFound"),
    Case("no such version of a group", "GET", "/apis/apps/v9", status=404, reason="NotFound"),
    Case("no such resource", "GET", "/api/v1/nothings", status=404, reason="NotFound"),
    Case("no such resource of a group", "GET", "/apis/apps/v1/nothings", status=404, reason="NotFound"),
    Case("no such subresource", "GET", f"{THERE}/bogus", status=404, reason="NotFound"),
    Case("no status where there is none", "GET", f"{THERE}/status", status=404, reason="NotFound"),
    Case("far too deep", "GET", f"{MAPS}/a/b/c/d", status=404, reason="NotFound"),
    Case("a slash in a name", "GET", f"{MAPS}/a%2Fb", status=404, reason="NotFound"),
    Case("an object without its namespace", "GET", "/api/v1/configmaps/there", status=404, reason="NotFound"),
    Case("a namespace for what has none", "GET", "/api/v1/namespaces/default/persistentvolumes", status=404, reason="NotFound"),
    Case("an object that cannot be", "GET", f"{MAPS}/A%20B", status=404, reason="NotFound"),
    Case("the folder above", "GET", f"{MAPS}/..", reason="BadRequest"),
    Case("into no namespace", "POST", "/api/v1/namespaces/none/configmaps", _configmap(), status=404, reason="NotFound"),
    Case("into a namespace that cannot be", "POST", "/api/v1/namespaces/A_B/configmaps", _configmap(), status=404, reason="NotFound"),
    Case("what is not there is not replaced", "PUT", NONE, _configmap(name="none"), status=404, reason="NotFound"),
]
NOT_SO = [
    Case("a list is not replaced", "PUT", MAPS, _configmap(), status=405, reason="MethodNotAllowed"),
    Case("a list is not patched", "PATCH", MAPS, {}, MERGE, 405, "MethodNotAllowed"),
    Case("an object is not posted to", "POST", THERE, _configmap(), status=405, reason="MethodNotAllowed"),
    Case("nothing is made in all namespaces", "POST", "/api/v1/configmaps", _configmap(), status=405, reason="MethodNotAllowed"),
    Case("nor deleted in all", "DELETE", "/api/v1/configmaps", status=405, reason="MethodNotAllowed"),
    Case("trace", "TRACE", MAPS, status=405, reason="MethodNotAllowed"),
    Case("options", "OPTIONS", MAPS, status=405, reason="MethodNotAllowed"),
    Case("evictions cannot be read", "GET", f"{PODS}/a/eviction", status=405, reason="MethodNotAllowed"),
    Case("evictions cannot be put", "PUT", f"{PODS}/a/eviction", {}, status=405, reason="MethodNotAllowed"),
    Case("a status cannot be posted", "POST", f"{PODS}/a/status", {}, status=405, reason="MethodNotAllowed"),
    Case("a status cannot be deleted", "DELETE", f"{PODS}/a/status", status=405, reason="MethodNotAllowed"),
    Case("the version cannot be posted", "POST", "/version", {}, status=405, reason="MethodNotAllowed"),
    Case("nor discovery", "POST", "/api/v1", {}, status=405, reason="MethodNotAllowed"),
]
NO_SUCH_OBJECT = [
    Case("another kind", "POST", MAPS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}),
    Case("another version", "POST", MAPS, {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "x"}}),
    Case("a made-up kind", "POST", MAPS, {"apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x"}}),
    Case("a kind that is a number", "POST", MAPS, {"kind": 5, "metadata": {"name": "x"}}),
    Case("a name that is a number", "POST", MAPS, {"metadata": {"name": 5}}),
    Case("metadata that is a list", "POST", MAPS, {"metadata": []}),
    Case("metadata that is a string", "POST", MAPS, {"metadata": "x"}),
    Case("labels that are a list", "POST", MAPS, _configmap(labels=[])),
    Case("a label that is a number", "POST", MAPS, _configmap(labels={"a": 1})),
    Case("data that is a number", "POST", MAPS, _configmap() | {"data": {"a": 1}}),
    Case("a spec that is a list", "POST", CLAIMS, {"metadata": {"name": "x"}, "spec": []}),
    Case("a quantity that is none", "POST", CAPACITIES, {"metadata": {"name": "x"}, "storageClassName": "fast", "capacity": "1Zi"}),
    Case("an unknown field, strictly", "POST", f"{MAPS}?fieldValidation=Strict", _configmap() | {"bogus": 1}),
    Case("another namespace", "POST", MAPS, _configmap(namespace="kube-system")),
    Case("a put without a name", "PUT", THERE, {"metadata": {}}),
    Case("a put of another name", "PUT", THERE, _configmap(name="other")),
    Case("a patch of another name", "PATCH", THERE, {"metadata": {"name": "other"}}, MERGE),
    Case("delete options of a kind", "DELETE", THERE, _configmap()),
    Case("a grace period in words", "DELETE", NONE, {"gracePeriodSeconds": "x"}),
    Case("an eviction of nobody", "POST", f"{PODS}/none/eviction", {}),
    Case("an eviction of another", "POST", f"{PODS}/none/eviction", {"metadata": {"name": "other"}}),
    Case("an eviction that is a pod", "POST", f"{PODS}/none/eviction", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "none"}}),
    Case("a version that is none", "PUT", THERE, _configmap(name="there", resourceVersion="abc"), status=500, reason=""),
    Case("a version on birth", "POST", MAPS, _configmap(resourceVersion="5"), status=500, reason=""),
]
INVALID = [
    Case("nothing at all", "POST", MAPS, {}, status=422, reason="Invalid"),
    Case("null", "POST", MAPS, b"null", status=422, reason="Invalid"),
    Case("a name in capitals", "POST", MAPS, _configmap(name="A"), status=422, reason="Invalid"),
    Case("a very long name", "POST", MAPS, _configmap(name="a" * 1000), status=422, reason="Invalid"),
    Case("a very long prefix", "POST", MAPS, {"metadata": {"generateName": "a" * 300}}, status=422, reason="Invalid"),
    Case("a label with a space", "POST", MAPS, _configmap(labels={"a b": "c"}), status=422, reason="Invalid"),
    Case("a value with a space", "POST", MAPS, _configmap(labels={"a": "c d"}), status=422, reason="Invalid"),
    Case("a long value", "POST", MAPS, _configmap(labels={"a": "c" * 64}), status=422, reason="Invalid"),
    Case("annotations without end", "POST", MAPS, _configmap(annotations={"a": "c" * 262_145}), status=422, reason="Invalid"),
    Case("a finalizer of nobody", "POST", MAPS, _configmap(finalizers=["a"]), status=422, reason="Invalid"),
    Case("half an owner", "POST", MAPS, _configmap(ownerReferences=[{"name": "x"}]), status=422, reason="Invalid"),
    Case("an empty claim", "POST", CLAIMS, {"metadata": {"name": "x"}}, status=422, reason="Invalid"),
    Case("an empty volume", "POST", VOLUMES, {"metadata": {"name": "x"}}, status=422, reason="Invalid"),
    Case("an empty pod", "POST", PODS, {"metadata": {"name": "x"}}, status=422, reason="Invalid"),
    Case("an empty class", "POST", CLASSES, {"metadata": {"name": "x"}}, status=422, reason="Invalid"),
    Case("an empty capacity", "POST", CAPACITIES, {"metadata": {"name": "x"}}, status=422, reason="Invalid"),
    Case(
        "a negative capacity",
        "POST",
        CAPACITIES,
        {"metadata": {"name": "x"}, "storageClassName": "f", "capacity": "-1"},
        JSON,
        422,
        "Invalid",
    ),
    Case("a made-up dry run", "POST", f"{MAPS}?dryRun=x", _configmap(), status=422, reason="Invalid"),
    Case("a patch into another kind", "PATCH", THERE, {"kind": "Pod"}, MERGE, 422, "Invalid"),
    Case("a patch into another type", "PATCH", THERE, {"data": 5}, MERGE, 422, "Invalid"),
    Case("a patch of the uid", "PATCH", THERE, {"metadata": {"uid": "z"}}, MERGE, 422, "Invalid"),
    Case("a made-up operation", "PATCH", THERE, [{"op": "frob", "path": "/data/x"}], JSON_PATCH, 422, "Invalid"),
    Case("an operation on nothing", "PATCH", THERE, [{"op": "add"}], JSON_PATCH, 422, "Invalid"),
    Case("a path that is not there", "PATCH", THERE, [{"op": "remove", "path": "/data/none"}], JSON_PATCH, 422, "Invalid"),
    Case("a made-up propagation", "DELETE", THERE, {"propagationPolicy": "x"}, status=422, reason="Invalid"),
    Case(
        "two words on dependents", "DELETE", THERE, {"orphanDependents": True, "propagationPolicy": "Orphan"}, status=422, reason="Invalid"
    ),
]
ODD_QUESTIONS = [
    Case("a selector in prose", "GET", f"{MAPS}?labelSelector=a%20in%20b"),
    Case("a selector of signs", "GET", f"{MAPS}?labelSelector=%3D%3Db"),
    Case("a field nobody selects by", "GET", f"{MAPS}?fieldSelector=spec.x%3Db"),
    Case("a field of a pod nobody selects by", "GET", f"{PODS}?fieldSelector=spec.x%3Db"),
    Case("no field selector at all", "GET", f"{MAPS}?fieldSelector=abc"),
    Case("a limit in words", "GET", f"{MAPS}?limit=x"),
    Case("a token of nobody", "GET", f"{MAPS}?limit=1&continue=nonsense"),
    Case("a version in words", "GET", f"{MAPS}?resourceVersion=abc"),
    Case("a watch from a version in words", "GET", f"{MAPS}?watch=true&resourceVersion=abc", status=500, reason=""),
    Case("a watch for some time", "GET", f"{MAPS}?watch=true&timeoutSeconds=x"),
    Case("a match without a version", "GET", f"{MAPS}?resourceVersionMatch=Exact", status=422, reason="Invalid"),
    Case("a made-up match", "GET", f"{MAPS}?resourceVersionMatch=X&resourceVersion=1", status=422, reason="Invalid"),
    Case("exactly no version", "GET", f"{MAPS}?resourceVersionMatch=Exact&resourceVersion=0", status=422, reason="Invalid"),
    Case("a watch with a match", "GET", f"{MAPS}?watch=true&resourceVersionMatch=NotOlderThan", status=422, reason="Invalid"),
    Case("first events without a match", "GET", f"{MAPS}?watch=true&sendInitialEvents=true", status=422, reason="Invalid"),
    Case("a watch that continues", "GET", f"{MAPS}?watch=true&continue=x", status=422, reason="Invalid"),
    Case("a version to come", "GET", f"{MAPS}?resourceVersion=99999999", status=504, reason="Timeout"),
]
STRANGERS = [
    Case("a token of nobody", "GET", MAPS, status=401, reason="Unauthorized", headers={"Authorization": "Bearer nonsense"}),
    Case("no token", "GET", MAPS, status=403, reason="Forbidden", headers={"Authorization": ""}),
    Case("no token, to discover", "GET", "/api", status=403, reason="Forbidden", headers={"Authorization": ""}),
    Case("no token, to nowhere", "GET", "/foo", status=403, reason="Forbidden", headers={"Authorization": ""}),
]
CASES = [*UNREADABLE, *NOWHERE, *NOT_SO, *NO_SUCH_OBJECT, *INVALID, *ODD_QUESTIONS, *STRANGERS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_with_code_and_reason(client: Client, case: Case) -> None:
    answer = client.send(case.method, case.path, case.body, content=case.content, **case.headers)
    assert answer == (case.status, case.reason)


def test_nothing_came_of_it_all(client: Client) -> None:
    assert client.send("GET", THERE) == (200, "")
    assert client.send("GET", f"{MAPS}/bad") == (404, "NotFound")


# The server lives for the whole session, and a request that is refused leaves nothing behind for the next example.
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)


@many
@given(raw=st.binary(max_size=60).filter(lambda raw: not raw.strip().startswith((b"{", b"null"))))
def test_bytes_that_are_no_object(client: Client, raw: bytes) -> None:
    assert client.send("POST", MAPS, raw) == (400, "BadRequest")


@many
@given(value=values.filter(lambda value: not isinstance(value, dict | None)))
def test_json_that_is_no_object(client: Client, value: Any) -> None:
    assert client.send("POST", MAPS, value) == (400, "BadRequest")
    assert client.send("PUT", THERE, value) == (400, "BadRequest")


@many
@given(field=st.sampled_from(["name", "namespace", "uid", "labels", "annotations"]), value=st.booleans() | st.integers(1, 9) | st.just([1]))
def test_metadata_of_the_wrong_type(client: Client, field: str, value: Any) -> None:
    assert client.send("POST", MAPS, _configmap(**{field: value})) == (400, "BadRequest")
    assert client.send("PUT", THERE, _configmap(name="there") | {"metadata": {"name": "there", field: value}}) == (400, "BadRequest")


@many
@given(spec=st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2))
def test_a_spec_that_is_no_object(client: Client, spec: Any) -> None:
    assert client.send("POST", CLAIMS, {"metadata": {"name": "x"}, "spec": spec}) == (400, "BadRequest")


@many
@given(name=st.from_regex(r"\A[A-Z_a-z.-]{1,20}\Z").filter(lambda name: name != name.lower() or name.endswith((".", "-", "_"))))
def test_names_that_cannot_be(client: Client, name: str) -> None:
    assert client.send("POST", MAPS, _configmap(name=name)) == (422, "Invalid")


@many
@given(path=st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6), min_size=1, max_size=3))
def test_resources_nobody_serves(client: Client, path: list[str]) -> None:
    tail = "/".join(quote(f"x{part}") for part in path)
    assert client.send("GET", f"/api/v1/{tail}") == (404, "NotFound")


steps = st.fixed_dictionaries(
    # Not null, which is what a test finds where nothing is; and not `replace`, which the real server takes for `add`.
    {"op": st.sampled_from(["remove", "test"]), "path": st.just("/data/none"), "value": scalars.filter(lambda value: value is not None)}
)


@many
@given(patch=st.lists(steps, min_size=1, max_size=3))
def test_json_patches_of_what_is_not_there(client: Client, patch: list[Any]) -> None:
    assert client.send("PATCH", THERE, patch, content=JSON_PATCH) == (422, "Invalid")


def test_a_json_patch_may_replace_what_is_not_there(client: Client) -> None:
    assert client.send("POST", MAPS, {"metadata": {"name": "lax"}, "data": {"x": "1"}}) == (201, "")
    lax = [{"op": "test", "path": "/data/none", "value": None}, {"op": "replace", "path": "/data/none", "value": "new"}]
    assert client.send("PATCH", f"{MAPS}/lax", lax, content=JSON_PATCH) == (200, "")
