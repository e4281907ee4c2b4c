"""Whatever is wrong around it, it says so in one clear line, stays calm, and recovers where that is possible."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, Sidecar, claim
from tests.harness.accounts import UPSTREAM, account, grant
from tests.harness.cluster import CLAIMS, SOON, Cluster, now

# ---- how to reach the API server ----


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param("{{{ no yaml\n -", "cannot be used", id="malformed"),
        pytest.param("", "cannot be used", id="empty"),
        pytest.param('{"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}', "no context", id="no-context"),
        pytest.param("/", "directory", id="directory"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(content: str | None, reason: str, tmp_path: Path) -> None:
    """Exit 1 and one line with the file and what is wrong with it."""
    file = tmp_path / "kubeconfig"
    if content == "/":
        file.mkdir()
    elif content is not None:
        file.write_text(content)
    with Sidecar(tmp_path, node="n1", address=tmp_path / "none.sock", kubeconfig=file) as sidecar:
        assert sidecar.wait() == 1
    (line,) = sidecar.records("WEF")
    assert f"kubeconfig {file}" in line
    assert reason in line
    assert "NoneType" not in line


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sidecar = Sidecar(tmp_path, node="n1", address=tmp_path / "none.sock", kubeconfig="", args=["--master=http://127.0.0.1:1"])
        sidecar.command.append(f"--http-endpoint=127.0.0.1:{taken.getsockname()[1]}")
        with sidecar:
            assert sidecar.wait() == 1
        (line,) = sidecar.records("WEF")
        assert f"cannot listen on 127.0.0.1:{taken.getsockname()[1]}" in line
        assert "Address already in use" in line


class NotKubernetes(BaseHTTPRequestHandler):
    """Whatever is asked, the answer is the server's `page`, a login form of some proxy perhaps."""

    def do_GET(self) -> None:
        code, kind, body = self.server.page  # type: ignore[attr-defined]
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not into the test's output."""


@contextlib.contextmanager
def answering(code: int, kind: str, body: bytes) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), NotKubernetes) as server:
        server.page = (code, kind, body)  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


LOGIN = b"<html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("page", "reason", "logged"),
    [
        pytest.param(None, "no answer that can be used", "127.0.0.1:1", id="refuses"),
        pytest.param(
            (200, "text/html", LOGIN), "no answer that can be used", "the answer is not a list: <html><body>Please log in", id="html"
        ),
        pytest.param((200, "application/json", b"{}"), "no answer that can be used", "the answer is not a list", id="other-json"),
        pytest.param((302, "text/html", LOGIN), "302 ApiError", "list", id="redirect"),
        pytest.param((500, "text/plain", b"out of order"), "500 Unavailable", "out of order", id="broken"),
    ],
)
def test_a_server_that_is_no_api_server_is_borne_with(
    page: tuple[int, str, bytes] | None, reason: str, logged: str, tmp_path: Path
) -> None:
    """It may become one: alive, not ready, the reason told, in full in the log, and no more than an attempt now and then."""
    server = contextlib.nullcontext("http://127.0.0.1:1") if page is None else answering(*page)
    with server as url, OurDriver(tmp_path, node="n1") as driver:
        with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig="", args=[f"--master={url}"]) as sidecar:
            for resource in ("persistentvolumeclaims", "persistentvolumes", "storageclasses"):
                says_why(sidecar, f"caches/{resource}: Degraded: ", reason)
            assert logged in sidecar.output() and "SSLContext" not in sidecar.output()
            assert "Please log in" not in sidecar.page("/readyz?verbose")[1]
            stays_calm(sidecar)
            assert not sidecar.ready()
        assert sidecar.child.returncode == 0


# ---- what the API server lets it do ----


def test_a_rejected_token_is_told_and_a_new_one_is_taken_up(cluster: Cluster, tmp_path: Path) -> None:
    """401: not ready, the reason in /readyz, calm; when the kubeconfig has a good token it goes on in the same process."""
    good, file = cluster.role.read_text(), tmp_path / "kubeconfig"
    bad = json.loads(good)
    bad["users"][0]["user"]["token"] = "a-token-of-yesterday"
    file.write_text(json.dumps(bad))
    with cluster.driver() as driver, cluster.sidecar(driver, kubeconfig=file) as sidecar:
        says_why(sidecar, "caches/persistentvolumeclaims: Degraded: ", "Unauthorized")
        stays_calm(sidecar)
        file.write_text(good)
        sidecar.until_ready()
        assert sidecar.records("EF") == []
        assert "a-token-of-yesterday" not in sidecar.output()


def test_a_missing_right_is_named_and_taken_up_when_granted(cluster: Cluster) -> None:
    """403: not ready; the reason names verb and resource; no restart is needed once the right is there."""
    without = UPSTREAM.without_kinds("storageclasses")
    driver = cluster.driver()
    with account(cluster, "too-little", without) as kubeconfig, driver, cluster.sidecar(driver, kubeconfig=kubeconfig) as sidecar:
        says_why(sidecar, "caches/storageclasses: Degraded: list storageclasses", "403 Forbidden")
        until(lambda: "persistentvolumes" not in sidecar.page("/readyz")[1], "the other lists to arrive")
        stays_calm(sidecar)
        grant(cluster, "too-little", UPSTREAM)
        sidecar.until_ready()
        assert sidecar.records("EF") == []


class AttachingDriver(OurDriver):
    """Claims to attach volumes, which our driver never does. Nobody asks it to."""

    PROGRAM = """
import dataclasses, sys
from hack.sim.driver import serve
from hack.sim.driver.local_driver import LocalDriver
plain = LocalDriver.info.fget
attaches = lambda info: dataclasses.replace(info, controller=info.controller | {"PUBLISH_UNPUBLISH_VOLUME"})
LocalDriver.info = property(lambda self: attaches(plain(self)))
sys.exit(serve.main())
"""

    def __init__(self, work: Path, *, name: str) -> None:
        super().__init__(work, node="n1", name=name)
        self.command[1:3] = ["-c", self.PROGRAM]


def test_without_an_optional_right_its_feature_is_off_and_the_rest_works(cluster: Cluster, tmp_path: Path) -> None:
    """A driver that attaches makes it look at VolumeAttachments, which sample roles often do not allow."""
    without = UPSTREAM.without_kinds("volumeattachments")
    driver = AttachingDriver(tmp_path, name=cluster.driver_name)
    cluster.classes(driver)
    with contextlib.ExitStack() as running:
        kubeconfig = running.enter_context(account(cluster, "no-attachments", without))
        running.enter_context(driver)
        sidecar = running.enter_context(cluster.sidecar(driver, *SOON, kubeconfig=kubeconfig))
        sidecar.until_ready()
        (line,) = sidecar.records("WEF")
        assert "volumeattachments" in line
        assert "the feature that needs it is disabled" in line
        cluster.create(CLAIMS, claim("data", now(driver)))
        cluster.bound("data")
        assert "caches/volumeattachments: Stopped: off: " in sidecar.page("/readyz?verbose")[1]
        assert sidecar.ready()


# ---- helpers ----


def says_why(sidecar: Sidecar, *texts: str) -> None:
    """Not ready, for a reason in one line that has all of these texts."""

    def reasons() -> bool:
        status, page = sidecar.page("/readyz")
        return status == 503 and any(all(text in line for text in texts) for line in page.splitlines())

    until(reasons, lambda: f"/readyz tells {texts}; it says {sidecar.page('/readyz')}")


def stays_calm(sidecar: Sidecar) -> None:
    """Trouble that lasts costs next to nothing: no log, processor or API server is flooded. It stays alive meanwhile."""
    requests, lines, used = sidecar.metric("csi_node_sidecar_api_requests_total"), len(sidecar.records()), sidecar.cost().cpu
    began = time.monotonic()
    time.sleep(3.0)
    watched, passed = 4, time.monotonic() - began
    assert sidecar.metric("csi_node_sidecar_api_requests_total") - requests <= watched * passed
    assert len(sidecar.records()) - lines <= watched * passed
    assert sidecar.cost().cpu - used < passed / 5
    assert sidecar.page("/healthz") == (200, "ok")
