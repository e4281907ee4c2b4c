"""What is said and asked in a handshake, as other clients of the cluster do it, which are written in Go."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from sidecar.kube.api import VOLUMES
from sidecar.kube.credentials import Access
from sidecar.kube.errors import Unavailable
from tests.harness.loops import real, run
from tests.kube.certificates import certificate_for_this_machine, identity, kubeconfig
from tests.kube.server import ScriptedServer, says

OK = says({"metadata": {"resourceVersion": "9"}})


@pytest.fixture
def everything_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is this machine."""
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: look_up("127.0.0.1", *rest, **named))


@pytest.mark.parametrize("by", ["pod", "kubeconfig"])
def test_http_1_1_is_offered_and_nothing_else(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that terminates TLS may choose HTTP/2 for a client that does not say what it speaks."""
    certificate, tls = certificate_for_this_machine(tmp_path, "test")
    tls.set_alpn_protocols(["h2", "http/1.1"])
    chosen: list[str | None] = []

    async def main() -> None:
        async with ScriptedServer(OK, tls=tls) as server:
            config = kubeconfig(tmp_path, server.url, {"certificate-authority": str(certificate)}, token="t")
            (tmp_path / "account").mkdir()
            (tmp_path / "account" / "ca.crt").write_bytes(certificate.read_bytes())
            (tmp_path / "account" / "token").write_text("t")
            environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
            access = Access(
                kubeconfig=config if by == "kubeconfig" else "",
                master="",
                service_account=tmp_path / "account",
                environ=environ,
                clock=lambda: 0.0,
            )
            await access.load()
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=access.tls)
            chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
            writer.close()

    run(main())
    assert chosen == ["http/1.1"]


@pytest.mark.usefixtures("everything_is_local")
@pytest.mark.parametrize(("names", "trusted"), [((), False), (("DNS:api.example.test",), True)])
@real
async def test_a_certificate_that_names_the_server_as_its_common_name_alone_is_refused(
    names: tuple[str, ...], trusted: bool, tmp_path: Path
) -> None:
    made = identity(tmp_path, "api.example.test", *names)

    async with ScriptedServer(OK, tls=made.server()) as server:
        config = kubeconfig(tmp_path, f"https://api.example.test:{server.port}", {"certificate-authority": str(made.file)}, token="t")
        async with await server.client(master="", kubeconfig=config) as client:
            if trusted:
                await client.get(VOLUMES, "pv")
            else:
                with pytest.raises(Unavailable, match="is not trusted"):
                    await client.get(VOLUMES, "pv")


def test_a_server_that_is_not_to_be_verified_is_used_and_that_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, tls = certificate_for_this_machine(tmp_path, "somebody else")
    caplog.set_level(logging.INFO, "sidecar")
    now = [0.0]

    async def main() -> None:
        async with ScriptedServer(OK, tls=tls) as server:
            config = kubeconfig(tmp_path, server.url, {"insecure-skip-tls-verify": True}, token="t")
            async with await server.client(master="", kubeconfig=config) as client:
                await client.get(VOLUMES, "pv")
            access = Access(kubeconfig=config, master="", service_account=tmp_path, environ={}, clock=lambda: now[0])
            caplog.clear()
            await access.load()
            now[0] = 1000.0
            await access.doubt(ValueError("read again"))

    run(main())
    told = [record for record in caplog.records if "not verified" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]
