"""Whatever is wrong around it, it says so in one clear line, stays calm, and recovers where that is possible."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, Sidecar, claim, pod
from tests.harness.accounts import account, grant, upstream_rules
from tests.harness.cluster import CAPACITIES, CLAIMS, PODS, SOON, VOLUMES, Cluster, late, now

# ---- the driver's socket ----


@pytest.fixture(scope="module", autouse=True)
def without_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Sidecar]]:
    """Two that wait in vain for a driver. Their time passes while the other tests run."""
    work = tmp_path_factory.mktemp("no-driver")
    (work / "file.sock").write_text("no socket")
    waiting = {
        name: Sidecar(work, node=name, address=work / f"{name}.sock", kubeconfig="", args=["--master=http://127.0.0.1:1"])
        for name in ("none", "file")
    }
    with waiting["none"], waiting["file"]:
        yield waiting


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
    ("page", "reason"),
    [
        pytest.param(None, "127.0.0.1:1", id="refuses"),
        pytest.param((200, "text/html", LOGIN), "the answer is not a list: <html><body>Please log in", id="html"),
        pytest.param((200, "application/json", b"{}"), "the answer is not a list", id="other-json"),
        pytest.param((302, "text/html", LOGIN), "list", id="redirect"),
        pytest.param((500, "text/plain", b"out of order"), "out of order", id="broken"),
    ],
)
def test_a_server_that_is_no_api_server_is_borne_with(page: tuple[int, str, bytes] | None, reason: str, tmp_path: Path) -> None:
    """It may become one: alive, not ready, the reason told, and no more than an attempt now and then."""
    server = contextlib.nullcontext("http://127.0.0.1:1") if page is None else answering(*page)
    with server as url, OurDriver(tmp_path, node="n1") as driver:
        with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig="", args=[f"--master={url}"]) as sidecar:
            for resource in ("persistentvolumeclaims", "persistentvolumes", "storageclasses"):
                says_why(sidecar, f"caches/{resource}: Degraded: ", reason)
            assert "SSLContext" not in sidecar.output()
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
    without = [rule for rule in upstream_rules() if "storageclasses" not in rule["resources"]]
    driver = cluster.driver()
    with account(cluster, "too-little", without) as kubeconfig, driver, cluster.sidecar(driver, kubeconfig=kubeconfig) as sidecar:
        says_why(sidecar, "caches/storageclasses: Degraded: ", 'cannot list resource "storageclasses"')
        until(lambda: "persistentvolumes" not in sidecar.page("/readyz")[1], "the other lists to arrive")
        stays_calm(sidecar)
        grant(cluster, "too-little", upstream_rules())
        sidecar.until_ready()
        assert sidecar.records("EF") == []


class AttachingDriver(OurDriver):
    """Claims to attach volumes, which our driver never does. Nobody asks it to."""

    PROGRAM = """
import sys
from hack.sim.driver import serve, spec
spec.FEATURES["attach"] = "PUBLISH_UNPUBLISH_VOLUME"
sys.exit(serve.main())
"""

    def __init__(self, work: Path, *, name: str) -> None:
        super().__init__(work, node="n1", name=name)
        self.command[1:3] = ["-c", self.PROGRAM]


def test_without_an_optional_right_its_feature_is_off_and_the_rest_works(cluster: Cluster, tmp_path: Path) -> None:
    """A driver that attaches makes it look at VolumeAttachments, which sample roles often do not allow."""
    without = [rule for rule in upstream_rules() if "volumeattachments" not in rule["resources"]]
    driver = AttachingDriver(tmp_path, name=cluster.driver_name)
    cluster.classes(driver)
    with driver, account(cluster, "no-attachments", without) as kubeconfig:
        with cluster.sidecar(driver, *SOON, kubeconfig=kubeconfig) as sidecar:
            sidecar.until_ready()
            (line,) = sidecar.records("WEF")
            assert "volumeattachments" in line
            assert "the feature that needs it is disabled" in line
            cluster.create(CLAIMS, claim("data", now(driver)))
            cluster.bound("data")
            assert "caches/volumeattachments: Stopped: off: " in sidecar.page("/readyz?verbose")[1]
            assert sidecar.ready()


def test_B1_without_rights_to_nodes_csinodes_and_leases_everything_works(cluster: Cluster) -> None:
    """Late binding, Immediate, capacity and deletion, none of which look at other nodes or at leases."""
    removed = {"nodes", "csinodes", "leases"}
    kept = [rule for rule in upstream_rules() if not removed & set(rule["resources"])]
    with account(cluster, "less", kept) as kubeconfig, cluster.driver() as driver:
        cluster.node("n1", driver)
        cluster.create(PODS, pod("owner", nodeName="n1"))
        args, environ = ("--enable-capacity", "--capacity-ownerref-level=0", *SOON), {"POD_NAME": "owner"}
        with cluster.sidecar(driver, *args, kubeconfig=kubeconfig, environ=environ) as sidecar:
            sidecar.until_ready()
            cluster.create(CLAIMS, claim("late", late(driver)))
            cluster.create(CLAIMS, claim("now", now(driver)))
            cluster.create(PODS, pod("consumer", "late"))
            cluster.bound("late", "now")
            until(lambda: [item["capacity"] for item in cluster.items(CAPACITIES)] == ["98Gi"], "capacity is published")
            cluster.delete(PODS, "consumer")
            cluster.request("DELETE", CLAIMS)
            until(lambda: not cluster.items(VOLUMES), "the volumes are gone")
            assert sidecar.records("WEF") == []


# ---- at last ----


@pytest.mark.parametrize(("which", "reason"), [("none", "does not exist"), ("file", "is no socket but a regular file")])
def test_S1_without_a_driver_it_gives_up_after_the_start_limit(which: str, reason: str, without_driver: Mapping[str, Sidecar]) -> None:
    """One line names the path, what is there instead, and what to check; on the way there it was calm."""
    sidecar = without_driver[which]
    assert sidecar.wait() == 1
    (line,) = sidecar.records("EF")
    assert f"no CSI driver within 30 s: {sidecar.log.parent / which}.sock {reason}. Check that" in line
    assert len(sidecar.records()) < 12


# ---- helpers ----


def says_why(sidecar: Sidecar, *texts: str) -> None:
    """Not ready, for a reason in one line that has all of these texts."""

    def reasons() -> bool:
        status, page = sidecar.page("/readyz")
        return status == 503 and any(all(text in line for text in texts) for line in page.splitlines())

    until(reasons, lambda: f"/readyz tells {texts}; it says {sidecar.page('/readyz')}")


def stays_calm(sidecar: Sidecar) -> None:
    """Trouble that lasts costs next to nothing: no log, processor or API server is flooded. It stays alive meanwhile."""
    requests, lines, used = sidecar.metric("csi_node_sidecar_api_requests_total"), len(sidecar.records()), sidecar.cpu_seconds()
    began = time.monotonic()
    time.sleep(3.0)
    watched, passed = 4, time.monotonic() - began
    assert sidecar.metric("csi_node_sidecar_api_requests_total") - requests <= watched * passed
    assert len(sidecar.records()) - lines <= watched * passed
    assert sidecar.cpu_seconds() - used < passed / 5
    assert sidecar.page("/healthz") == (200, "ok")
