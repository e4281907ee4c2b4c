"""Our reading of kubeconfigs is that of the Kubernetes client library, whatever they say; where client-go reads otherwise, client-go's."""

import asyncio
import base64
import itertools
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import config as loaders
from kubernetes.aio.client import ApiClient, Configuration

from sidecar.errors import Fatal
from sidecar.kube import kubeconfig
from tests.kube.certificates import certificate_for_this_machine

Json = dict[str, Any]
SERVERS = ("https://a.example:6443", "https://a.example:6443/k8s/c-1/", "http://a.example")
TLS_NAMES: tuple[Json, ...] = ({}, {"tls-server-name": "b.example"})
INSECURE: tuple[Json, ...] = ({}, {"insecure-skip-tls-verify": False}, {"insecure-skip-tls-verify": True})
PROXIES: tuple[Json, ...] = ({}, {"proxy-url": "http://proxy:3128"})
IN_WHICH = ("file", "file beside it", "data", "none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a certificate, which is its own authority, its key, and a token."""
    folder = tmp_path_factory.mktemp("beside")
    certificate_for_this_machine(folder, "one")
    (folder / "token").write_text("of-the-file\n")
    return folder


def named(folder: Path, key: str, file: str, how: str) -> Json:
    match how:
        case "file":
            return {key: str(folder / file)}
        case "file beside it":
            return {key: file}
        case "data":
            return {f"{key}-data": base64.b64encode((folder / file).read_bytes()).decode()}
        case _:
            return {}


def written(folder: Path, cluster: Json, user: Json, **context: str) -> Path:
    content = {
        "clusters": [{"name": "other", "cluster": {"server": "https://other"}}, {"name": "c", "cluster": cluster}],
        "users": [{"name": "other", "user": {"token": "other"}}, {"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


def seen(context: ssl.SSLContext) -> tuple[Any, ...]:
    return context.verify_mode, context.check_hostname, sorted(str(ca["serialNumber"]) for ca in context.get_ca_certs())


def ours(file: Path) -> Mapping[str, Any]:
    async def main() -> Mapping[str, Any]:
        found = await kubeconfig.read(str(file), clock=lambda: 0.0)
        told = {"server": found.server, "authorization": await found.authorization(), "tls": seen(found.tls)}
        return {**told, "tls_server_name": found.tls_server_name, "proxy": found.proxy, "namespace": found.namespace}

    return asyncio.run(main())


def theirs(file: Path) -> Mapping[str, Any]:
    async def main() -> Mapping[str, Any]:
        found = Configuration()
        loader = await loaders.load_kube_config(str(file), client_configuration=found, persist_config=False)
        bearer = (await found.auth_settings()).get("BearerToken") or {}
        async with ApiClient(configuration=found) as client:
            told = {
                "server": found.host,
                "authorization": str(bearer.get("value") or "").strip(),
                "tls": seen(client.rest_client.ssl_context),
            }
        namespace = loader.current_context["context"].get("namespace") or ""
        return {**told, "tls_server_name": found.tls_server_name, "proxy": found.proxy, "namespace": namespace}

    return asyncio.run(main())


def same(file: Path) -> None:
    assert ours(file) == theirs(file), file.read_text()


@pytest.mark.parametrize("server", SERVERS)
def test_clusters(server: str, folder: Path) -> None:
    for authority, name, insecure, proxy in itertools.product(IN_WHICH, TLS_NAMES, INSECURE, PROXIES):
        cluster = {"server": server, **named(folder, "certificate-authority", "one.crt", authority), **name, **insecure, **proxy}
        file = written(folder, cluster, {"token": "t"}, namespace="ns")
        if authority != "none" and insecure.get("insecure-skip-tls-verify"):
            with pytest.raises(Fatal, match="remove one of them"):
                ours(file)
        elif server.startswith("https") or authority == "none":
            same(file)


USERS: dict[str, Json] = {
    "nobody": {},
    "token": {"token": "t"},
    "a number": {"token": 12345},
    "token with a line break": {"token": "t\n"},
    "file": {"tokenFile": "token"},
    "empty token and file": {"token": "", "tokenFile": "token"},
    "password": {"username": "me", "password": "pä:ss"},
    "token and password": {"token": "t", "username": "me", "password": "p"},
}


@pytest.mark.parametrize("how", IN_WHICH)
@pytest.mark.parametrize("who", USERS)
def test_users(who: str, how: str, folder: Path) -> None:
    if who == "empty token and file":
        user = USERS[who]
        assert ours(written(folder, {"server": SERVERS[0]}, user))["authorization"] == "Bearer of-the-file"  # the library sends none
        return
    pair = {**named(folder, "client-certificate", "one.crt", how), **named(folder, "client-key", "one.key", how)}
    same(written(folder, {"server": SERVERS[0]}, {**USERS[who], **pair}))


def test_the_file_of_a_token_counts_more_than_a_token_as_with_client_go(folder: Path) -> None:
    def authorization(**user: str) -> object:
        return ours(written(folder, {"server": SERVERS[0]}, dict(user)))["authorization"]

    assert authorization(token="t", tokenFile="token") == "Bearer of-the-file"
    assert authorization(token="t", tokenFile="not-there") == "Bearer t"
    with pytest.raises(Fatal, match="not-there is not there"):
        authorization(tokenFile="not-there")


def test_data_counts_more_than_a_file(folder: Path) -> None:
    both = {**named(folder, "certificate-authority", "one.crt", "data"), "certificate-authority": "not-there"}
    same(written(folder, {"server": SERVERS[0], **both}, {}))


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"certificate-authority": "not-there"}, {}, "its certificate-authority cannot be used"),
        ({"certificate-authority-data": "%%%"}, {}, "its certificate-authority cannot be used"),
        ({"insecure-skip-tls-verify": "no"}, {}, "insecure-skip-tls-verify is neither true nor false"),
        ({}, {"client-certificate": "one.crt", "client-key": "token"}, "its client-certificate or client-key cannot be used"),
        ({}, {"client-certificate": "one.crt", "client-key-data": "c2VjcmV0"}, "its client-certificate or client-key cannot be used"),
        ({}, {"tokenFile": "one.crt"}, "holds something else than a token"),
    ],
)
def test_what_cannot_be_used_is_one_line_without_a_secret(cluster: Json, user: Json, said: str, folder: Path) -> None:
    with pytest.raises(Fatal, match=said) as wrong:
        ours(written(folder, {"server": SERVERS[0], **cluster}, user))
    assert "\n" not in str(wrong.value) and "secret" not in str(wrong.value)


def test_what_is_no_yaml_is_told_by_its_line_alone(folder: Path) -> None:
    file = folder / "broken"
    file.write_text("users:\n- token: secret: secret\n")
    with pytest.raises(Fatal, match="line 2 is no YAML") as wrong:
        ours(file)
    assert "secret" not in str(wrong.value) and "\n" not in str(wrong.value)


def test_keys_that_stand_in_it_are_written_nowhere(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    pair = {**named(folder, "client-certificate", "one.crt", "data"), **named(folder, "client-key", "one.key", "data")}
    assert ours(written(folder, {"server": SERVERS[0]}, pair))


def test_where_memory_is_no_place_for_files_they_are_gone_at_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(kubeconfig, "_OPEN_FILES", str(tmp_path / "nowhere"))
    pair = {**named(folder, "client-certificate", "one.crt", "data"), **named(folder, "client-key", "one.key", "data")}
    assert ours(written(folder, {"server": SERVERS[0]}, pair))
    assert not list(tmp_path.iterdir())
