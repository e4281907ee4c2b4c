"""Where the server is, who we are, and what happens when either changes while we run."""

import base64
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sidecar.config.parse import Parsed, parse
from sidecar.errors import Fatal
from sidecar.kube.api import VOLUMES
from sidecar.kube.client import KubeClient, open_client
from sidecar.kube.credentials import Access
from sidecar.kube.errors import Unauthorized, Unavailable
from tests.harness.clock import Clock
from tests.harness.loops import real, run
from tests.kube.certificates import KEY, certificate_for_this_machine, kubeconfig, server_side
from tests.kube.server import ScriptedServer, refuses, says

OK = says({"metadata": {"resourceVersion": "9"}})


def _chain(folder: Path, *, name: str) -> tuple[Path, ssl.SSLContext]:
    """A CA that another one has signed, alone in its file, and a server's certificate that it has signed."""
    folder.mkdir()
    (folder / "ca.ext").write_text("basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n")
    (folder / "server.ext").write_text(f"subjectAltName={name}\n")
    made = [["req", "-x509", *KEY, "-days", "1", "-subj", "/CN=root", "-out", "root.crt", "-keyout", "root.key"]]
    for subject, signer, kind in (("middle", "root", "ca"), ("server", "middle", "server")):
        made.append(["req", *KEY, "-subj", f"/CN={subject}", "-out", f"{subject}.csr", "-keyout", f"{subject}.key"])
        by = ["-CA", f"{signer}.crt", "-CAkey", f"{signer}.key", "-CAcreateserial", "-days", "1", "-extfile", f"{kind}.ext"]
        made.append(["x509", "-req", "-in", f"{subject}.csr", *by, "-out", f"{subject}.crt"])
    for command in made:
        subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=folder)
    return folder / "middle.crt", server_side(folder / "server.crt", folder / "server.key")


def _pod(folder: Path, ca: Path, *, token: str) -> Path:
    account = folder / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_bytes(ca.read_bytes())
    (account / "token").write_text(token)
    return account


async def _client_in(server: ScriptedServer, account: Path, **options: Any) -> KubeClient:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    return await server.client(master="", service_account=account, environ=environ, **options)


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says_what"),
    [
        (None, "no such file"),
        ("", "cannot be used"),
        ("\0", "cannot be used"),
        ("just text", "cannot be used"),
        ("{a: [", "cannot be used"),
        ("[]", "cannot be used"),
        ("{}", "cannot be used"),
        ("{apiVersion: v1, kind: Config, current-context: x, contexts: [], clusters: []}", "cannot be used"),
    ],
)
def test_a_kubeconfig_that_is_missing_or_broken_ends_it_with_one_line(text: str | None, says_what: str, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Fatal, match=f"kubeconfig .*{says_what}") as caught:
        run(open_client(kubeconfig=str(file)))
    assert "\n" not in str(caught.value)


def test_a_kubeconfig_without_a_server(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="names no server"):
        run(open_client(kubeconfig=kubeconfig(tmp_path, "")))


NO_CA = "-----BEGIN CERTIFICATE-----\n"


@pytest.mark.parametrize("text", ["garbage", NO_CA])
def test_a_ca_in_the_kubeconfig_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", {"certificate-authority-data": base64.b64encode(text.encode()).decode()})
    with pytest.raises(Fatal, match=f"^kubeconfig {config}: its certificate-authority cannot be used: ") as caught:
        run(open_client(kubeconfig=config))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["garbage", NO_CA])
def test_a_truncated_ca_in_the_pod_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    ca = tmp_path / "ca.crt"
    ca.write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(Fatal, match=f"^{ca} cannot be used: "):
        run(open_client(service_account=tmp_path, environ=environ))


@pytest.mark.parametrize("login", ["joe:canary", "joe:c/anary", "canary", "joe:can@ry"])
@pytest.mark.parametrize("host", ["host:0", "", "host:x"])
def test_an_address_that_cannot_be_used_is_shown_without_its_login(login: str, host: str) -> None:
    with pytest.raises(Fatal, match=r"the API server's address .* cannot be used: ") as caught:
        run(open_client(master=f"https://{login}@{host}"))
    assert not any(part in str(caught.value) for part in ("joe", "canary", "anary", "can@", "'c'"))


@pytest.mark.parametrize(
    ("master", "shown"),
    [
        ("https://joe:canary@host:6443/x", "https://host:6443/x"),
        ("HTTPS://joe:c/a?#@n@host:6443", "HTTPS://host:6443"),
        ("joe:canary@host:6443", "host:6443"),
        ("joe:c://a\n@host", "host"),
        ("https://[fd00::1]:6443/x", "https://[fd00::1]:6443/x"),
        ("host:6443", "host:6443"),
    ],
)
def test_the_address_is_told_without_its_login(master: str, shown: str) -> None:
    parsed = parse(["--node-deployment", f"--master={master}"], {"NODE_NAME": "n", "NAMESPACE": "ns", "POD_NAME": "p"})
    assert isinstance(parsed, Parsed) and parsed.config.master == master
    assert ("master", shown, "flag") in parsed.config.effective()


def test_outside_of_a_cluster_the_text_says_what_to_set(tmp_path: Path) -> None:
    for environ in ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}):
        with pytest.raises(Fatal, match=r"--kubeconfig.*KUBECONFIG.*run in a pod"):
            run(open_client(service_account=tmp_path, environ=environ))


@real
async def test_master_alone_and_master_overkubeconfig(tmp_path: Path) -> None:
    async with ScriptedServer(OK) as server:
        bare = server.url.removeprefix("http://")
        for options in (
            {"master": server.url},
            {"master": server.url + "/"},
            {"master": bare},
            {"master": server.url, "kubeconfig": kubeconfig(tmp_path, "http://127.0.0.1:1")},
            {"master": server.url, "kubeconfig": kubeconfig(tmp_path, "")},
            {"kubeconfig": kubeconfig(tmp_path, server.url + "/")},
            {"kubeconfig": f"{tmp_path / 'missing'}:{kubeconfig(tmp_path, server.url)}"},
        ):
            async with await open_client(**options) as client:
                await client.get(VOLUMES, "pv")
        assert len(server.seen) == 7


def test_a_kubeconfig_with_a_colon_in_its_path_is_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "token").write_text("from-its-own-folder")

    async def main() -> None:
        async with ScriptedServer(OK) as server:
            config = kubeconfig(folder, server.url, tokenFile="token")
            async with await open_client(kubeconfig=config) as client:
                await client.get(VOLUMES, "pv")
            assert server.seen[0].headers["authorization"] == "Bearer from-its-own-folder"

    run(main())
    (folder / "kubeconfig").write_text("")
    with pytest.raises(Fatal, match="cannot be used"):
        run(open_client(kubeconfig=str(folder / "kubeconfig")))
    with pytest.raises(Fatal, match="no such file"):
        run(open_client(kubeconfig=str(folder / "missing")))


# --- who --------------------------------------------------------------------------------------------------------------


@real
async def test_the_token_of_a_kubeconfig_is_on_the_wire_of_every_verb_and_of_watches(tmp_path: Path) -> None:
    async with ScriptedServer(OK) as server:
        config = kubeconfig(tmp_path, server.url, token="secret")
        async with await open_client(kubeconfig=config, user_agent="me/1", qps=-1.0) as client:
            await client.get(VOLUMES, "pv")
            await client.replace(VOLUMES, {}, name="pv")
            with pytest.raises(Unavailable):
                async for _ in client.watch(VOLUMES, resource_version="1"):
                    pass
    assert [(seen.headers["authorization"], seen.headers["user-agent"]) for seen in server.seen] == [("Bearer secret", "me/1")] * 3


@real
async def test_a_service_account_and_its_rotated_token(tmp_path: Path) -> None:
    certificate, tls = certificate_for_this_machine(tmp_path / "ca", "one")
    account = _pod(tmp_path, certificate, token="first\n")
    clock = Clock()

    unauthorized = refuses(401, "Unauthorized", reason="Unauthorized")
    async with ScriptedServer(OK, unauthorized, OK, tls=tls) as server, await _client_in(server, account, clock=clock) as client:
        await client.get(VOLUMES, "pv")
        (account / "token").write_text("second")
        clock.now = 30.0  # within the minute for which a token is kept
        with pytest.raises(Unauthorized):
            await client.get(VOLUMES, "pv")
        await client.get(VOLUMES, "pv")
    tokens = [seen.headers["authorization"].split() for seen in server.seen]
    assert [token for _, token in tokens] == ["first", "first", "second"]
    assert {scheme.lower() for scheme, _ in tokens} == {"bearer"}


def test_a_server_that_keeps_refusing_us_does_not_make_us_read_files_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    certificate, tls = certificate_for_this_machine(tmp_path / "ca", "one")
    account = _pod(tmp_path, certificate, token="first")
    clock = Clock()

    async def main() -> None:
        refused = refuses(401, "Unauthorized")
        async with ScriptedServer(refused, tls=tls) as server, await _client_in(server, account, clock=clock) as client:
            for _ in range(30):
                clock.now += 1.0
                with pytest.raises(Unauthorized):
                    await client.get(VOLUMES, "pv")

    run(main())
    assert sum("credentials again" in record.message for record in caplog.records) == 3


@pytest.mark.parametrize("content", ["", " \n"])
def test_a_pod_whose_token_is_empty_is_told_so(content: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(Fatal, match=r"no way to the API server: .*/token is empty.*: set --kubeconfig"):
        run(open_client(service_account=tmp_path, environ=environ))


@pytest.mark.parametrize("noticed", ["by a refused certificate", "by a changed file"])
@real
async def test_a_rotated_ca(noticed: str, tmp_path: Path) -> None:
    old, old_tls = certificate_for_this_machine(tmp_path / "ca", "old")
    new, new_tls = certificate_for_this_machine(tmp_path / "ca", "new")
    account = _pod(tmp_path, old, token="t")
    clock = Clock()

    async with ScriptedServer(OK, tls=old_tls) as before:
        client = await _client_in(before, account, clock=clock)
        await client.get(VOLUMES, "pv")
    async with ScriptedServer(OK, tls=new_tls, port=before.port) as after, client:
        (account / "ca.crt").write_bytes(new.read_bytes())
        if noticed == "by a changed file":
            clock.now = 61.0
        else:
            clock.now = 30.0
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await client.get(VOLUMES, "pv")
        await client.get(VOLUMES, "pv")
        assert len(after.seen) == 1


@pytest.mark.parametrize("inline", [True, False])
@real
async def test_a_kubeconfig_may_come_to_name_other_certificates(inline: bool, tmp_path: Path) -> None:
    """As a renewal does."""
    clock = Clock()

    def write(name: str) -> str:
        certificate, _ = certificate_for_this_machine(tmp_path / "user", name)
        files = {"client-certificate": certificate, "client-key": certificate.with_suffix(".key")}
        texts = {f"{key}-data": base64.b64encode(file.read_bytes()).decode() for key, file in files.items()}
        user = texts if inline else {key: str(file) for key, file in files.items()}
        return kubeconfig(tmp_path, f"https://{name}.example:6443", **user)

    access = Access(kubeconfig=write("old"), master="", service_account=tmp_path, environ={}, clock=clock)
    await access.load()
    write("new")
    clock.now = 100.0
    await access.doubt(Unauthorized("401", status=401))
    assert access.server == "https://new.example:6443"


@pytest.mark.parametrize("by", ["pod", "kubeconfig"])
@real
async def test_a_ca_that_another_one_has_signed_is_trusted_alone(by: str, tmp_path: Path) -> None:
    """As Go has it."""
    certificate, tls = _chain(tmp_path / "ca", name="IP:127.0.0.1")

    async with ScriptedServer(OK, tls=tls) as server:
        if by == "pod":
            client = await _client_in(server, _pod(tmp_path, certificate, token="t"))
        else:
            ca = base64.b64encode(certificate.read_bytes()).decode()
            client = await server.client(master="", kubeconfig=kubeconfig(tmp_path, server.url, {"certificate-authority-data": ca}))
        async with client:
            await client.get(VOLUMES, "pv")


@real
async def test_the_dot_that_ends_a_complete_name_stands_in_no_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, tls = _chain(tmp_path / "ca", name="DNS:api.example.test")
    account = _pod(tmp_path, certificate, token="t")
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: look_up("127.0.0.1", *rest, **named))

    async with ScriptedServer(OK, tls=tls) as server:
        environ = {"KUBERNETES_SERVICE_HOST": "api.example.test.", "KUBERNETES_SERVICE_PORT": str(server.port)}
        async with await server.client(master="", service_account=account, environ=environ) as client:
            await client.get(VOLUMES, "pv")


def test_a_bare_master_beside_a_kubeconfig_is_never_sent_its_token_in_clear(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "", token="secret")
    access = Access(kubeconfig=config, master="127.0.0.1:6443", service_account=tmp_path, environ={}, clock=Clock())
    run(access.load())
    assert access.server == "https://127.0.0.1:6443"


def test_credentials_that_cannot_be_read_afresh_leave_the_old_ones_at_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    async def main() -> None:
        async with ScriptedServer(refuses(401, "Unauthorized"), OK) as server:
            config = kubeconfig(tmp_path, server.url, token="secret")
            async with await open_client(kubeconfig=config, qps=-1.0, clock=clock) as client:
                (tmp_path / "kubeconfig").write_text("{ half")
                clock.now = 60.0
                with pytest.raises(Unauthorized):
                    await client.get(VOLUMES, "pv")
                await client.get(VOLUMES, "pv")
            assert server.seen[1].headers["authorization"] == "Bearer secret"

    run(main())
    assert "Could not read the credentials again: the previous ones stay in use" in caplog.text


# --- how --------------------------------------------------------------------------------------------------------------


@real
async def test_the_limiter_stands_before_every_kind_of_request() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 1))
        clock.now += seconds

    clock = Clock()
    async with ScriptedServer(OK) as server, await server.client(qps=1.0, burst=1, clock=clock, sleep=sleep) as client:
        await client.get(VOLUMES, "pv")
        await client.list_page(VOLUMES)
        with pytest.raises(Unavailable):
            async for _ in client.watch(VOLUMES, resource_version="1"):
                pass
        await client.list_page(VOLUMES, continue_token="a further page is free")
        await client.create(VOLUMES, {})
        await client.server_version()
        await client.with_limits(qps=1.0, burst=1).get(VOLUMES, "pv")
    assert waited == [1.0] * 4
