"""A pod's CA and token, in each way in which a file can be there, not be there or not be readable, at the start and later."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.errors import Fatal
from sidecar.kube.credentials import Access
from sidecar.kube.errors import Unauthorized
from tests.harness.clock import Clock
from tests.kube.certificates import certificate_for_this_machine, kubeconfig

ENVIRON = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
LOOK = 61.0
"""Longer than the pause between two looks at the files."""


@pytest.fixture(scope="module")
def cas(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("cas")
    return [certificate_for_this_machine(folder, name)[0].read_bytes() for name in ("a", "b", "c")]


class Pod:
    """A pod's folder, and what we make of it. Looks go by at a clock of their own."""

    def __init__(self, folder: Path, ca: bytes | None, token: bytes | None = b"t") -> None:
        self.ca, self.token = folder / "ca.crt", folder / "token"
        for file, content in ((self.ca, ca), (self.token, token)):
            if content is not None:
                file.write_bytes(content)
        self.clock = Clock()
        self.access = Access(kubeconfig="", master="", service_account=folder, environ=ENVIRON, clock=self.clock)

    def start(self) -> None:
        asyncio.run(self.access.load())

    def look(self, after: float = LOOK) -> str:
        self.clock.now += after
        return asyncio.run(self.access.authorization())

    def doubt(self, after: float = LOOK) -> None:
        self.clock.now += after
        asyncio.run(self.access.doubt(Unauthorized("401", status=401)))

    @property
    def trusted(self) -> set[int]:
        """The serial numbers of the CAs that are trusted."""
        return {int(str(ca["serialNumber"]), 16) for ca in self.access.tls.get_ca_certs()}


def serial(ca: bytes) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca.decode())
    [found] = context.get_ca_certs()
    return int(str(found["serialNumber"]), 16)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "sidecar.kube" and record.levelno >= logging.WARNING]
    return [f"{record.getMessage()} {getattr(record, 'fields', {}).get('error', '')}".strip() for record in records]


def nothing_below(file: Path) -> None:
    """A link into something that is no folder."""
    (file.parent / "no-folder").write_text("")
    file.symlink_to("no-folder/ca.crt")


UNREADABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link that leads nowhere": (lambda file: file.symlink_to("..data/ca.crt"), "No such file or directory"),
    "a link below a file": (nothing_below, "Not a directory"),
    "a link to itself": (lambda file: file.symlink_to(file.name), "symbolic links"),
    "a folder": (Path.mkdir, "Is a directory"),
    "a disk that fails": (lambda file: file.symlink_to("/proc/self/mem"), "Input/output error"),
}
unreadable = pytest.mark.parametrize(("make", "says"), UNREADABLE.values(), ids=UNREADABLE)


# --- the CA -------------------------------------------------------------------------------------------------------------


@unreadable
def test_a_ca_that_cannot_be_read_at_the_start_ends_it(make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    """To take it for missing would be to trust the hundred CAs of the system with the cluster's token."""
    pod = Pod(tmp_path, None)
    make(pod.ca)
    with pytest.raises(Fatal, match=f"^{pod.ca} cannot be read: .*{says}"):
        pod.start()


def test_a_ca_that_we_may_not_read_ends_the_start(cas: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod(tmp_path, cas[0])
    refuse(monkeypatch, pod.ca)
    with pytest.raises(Fatal, match=f"^{pod.ca} cannot be read: Permission denied"):
        pod.start()


@pytest.mark.parametrize("ca", [None, b"", b"\n"])
def test_without_a_ca_those_of_the_system_are_trusted_until_there_is_one(
    ca: bytes | None, cas: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As other clients do. The controller manager publishes an empty ca.crt where its own kubeconfig names no CA."""
    pod = Pod(tmp_path, ca)
    pod.start()
    assert pod.access.tls.verify_mode == ssl.CERT_REQUIRED
    assert ["the CAs of the system are trusted instead" in line for line in told(caplog)] == [True]
    pod.look()
    pod.ca.write_bytes(cas[0])
    pod.look()
    assert pod.trusted == {serial(cas[0])}
    assert len(told(caplog)) == 1


@unreadable
@pytest.mark.parametrize("noticed", ["by a look", "by a refused token"])
def test_a_ca_that_cannot_be_read_later_leaves_the_last_one(
    make: Callable[[Path], None], says: str, noticed: str, cas: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = Pod(tmp_path, cas[0])
    pod.start()
    before = pod.access.tls
    pod.ca.unlink()
    make(pod.ca)
    for _ in range(5):
        pod.look() if noticed == "by a look" else pod.doubt()
        assert pod.access.tls is before
    assert len(told(caplog)) == 1 and says in told(caplog)[0] and "stay in use" in told(caplog)[0]
    pod.ca.rmdir() if pod.ca.is_dir() else pod.ca.unlink()
    pod.ca.write_bytes(cas[1])
    pod.look()
    assert pod.trusted == {serial(cas[1])}


@pytest.mark.parametrize("left", ["nothing", "an empty file", "half a certificate", "one and a half", "something else"])
def test_a_ca_that_is_damaged_later_leaves_the_last_one(
    left: str, cas: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = Pod(tmp_path, cas[0])
    pod.start()
    before = pod.access.tls
    contents = {
        "an empty file": b"\n",
        "half a certificate": cas[1][:200],
        "one and a half": cas[1] + cas[2][:200],
        "something else": b"\xff",
    }
    pod.ca.write_bytes(contents[left]) if left in contents else pod.ca.unlink()
    for _ in range(5):
        pod.look()
        assert pod.access.tls is before
    assert len(told(caplog)) == 1 and str(pod.ca) in told(caplog)[0]
    pod.ca.write_bytes(cas[1])
    pod.look()
    assert pod.trusted == {serial(cas[1])}
    pod.ca.write_bytes(b"damaged again")
    pod.look()
    assert len(told(caplog)) == 2


def test_a_ca_may_be_replaced_twice_with_both_in_between(cas: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pod = Pod(tmp_path, cas[0])
    pod.start()
    for bundle in ([cas[0], cas[1]], [cas[1]], [cas[1], cas[2]], [cas[2]], [cas[0]]):
        pod.ca.write_bytes(b"".join(bundle))
        pod.look()
        assert pod.trusted == {serial(ca) for ca in bundle}
    assert told(caplog) == []


@pytest.mark.parametrize("file", ["ca", "token"])
@pytest.mark.parametrize("when", ["at the start", "later"])
def test_a_look_between_two_folders_of_the_kubelet_is_taken_again(
    file: str, when: str, cas: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who has followed the link into the old folder finds it deleted."""
    pod = Pod(tmp_path, None, None)
    (tmp_path / "..1").mkdir()
    (tmp_path / "..data").symlink_to("..1")
    for name, content in (("ca.crt", cas[0]), ("token", b"t")):
        (tmp_path / "..1" / name).write_bytes(content)
        (tmp_path / name).symlink_to(f"..data/{name}")
    if when == "later":
        pod.start()
        (tmp_path / "..1" / "ca.crt").write_bytes(cas[1])
    looked_at = pod.ca if file == "ca" else pod.token
    read, misses = Path.read_bytes, [FileNotFoundError(2, "No such file or directory", str(looked_at))]

    def missing_once(path: Path) -> bytes:
        if path == looked_at and misses:
            raise misses.pop()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", missing_once)
    pod.start() if when == "at the start" else pod.look()
    assert pod.trusted == {serial(cas[1 if when == "later" else 0])}
    assert misses == [] and told(caplog) == []


# --- the token ----------------------------------------------------------------------------------------------------------


@unreadable
def test_a_token_that_cannot_be_read_at_the_start_ends_it(
    make: Callable[[Path], None], says: str, cas: list[bytes], tmp_path: Path
) -> None:
    pod = Pod(tmp_path, cas[0], None)
    make(pod.token)
    with pytest.raises(Fatal, match=f"^{pod.token} cannot be read: .*{says}"):
        pod.start()


@pytest.mark.parametrize("token", [b"\xff", b"one\ntwo", b"one two", b"a\0b", "\N{LATIN SMALL LETTER DOTLESS I}".encode()])
def test_what_is_no_token_ends_the_start_and_is_not_shown(token: bytes, cas: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="token holds something else") as caught:
        Pod(tmp_path, cas[0], token).start()
    assert "one" not in str(caught.value)


@unreadable
@pytest.mark.parametrize("noticed", ["by a look", "by a refused token"])
def test_a_token_that_cannot_be_read_later_leaves_the_last_one(
    make: Callable[[Path], None], says: str, noticed: str, cas: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = Pod(tmp_path, cas[0])
    pod.start()
    pod.token.unlink()
    make(pod.token)
    for _ in range(5):
        if noticed == "by a refused token":
            pod.doubt()
        assert pod.look() == "Bearer t"
    lines = told(caplog)
    assert all(says in line and "in use" in line for line in lines)
    assert len(lines) == (1 if noticed == "by a look" else 2)  # that all was to be read again, and the token for itself
    pod.token.rmdir() if pod.token.is_dir() else pod.token.unlink()
    pod.token.write_bytes(b"new")
    assert pod.look() == "Bearer new"
    assert len(told(caplog)) == len(lines)


@pytest.mark.parametrize("left", [None, b"", b"\n", b"\xff", b"one\ntwo"])
def test_a_token_that_is_damaged_later_leaves_the_last_one_and_is_told_once(
    left: bytes | None, cas: list[bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = Pod(tmp_path, cas[0])
    pod.start()
    pod.token.unlink() if left is None else pod.token.write_bytes(left)
    assert {pod.look() for _ in range(5)} == {"Bearer t"}
    assert len(told(caplog)) == 1
    for token in (b"second", b"third"):
        pod.token.write_bytes(token)
        assert pod.look() == f"Bearer {token.decode()}"
    pod.token.write_bytes(b"")
    assert pod.look() == "Bearer third"
    assert len(told(caplog)) == 2


# --- those of a kubeconfig ----------------------------------------------------------------------------------------------


def of_kubeconfig(folder: Path) -> Access:
    """Whose CA is in a file."""
    file = kubeconfig(folder, "https://127.0.0.1:6443", {"certificate-authority": str(folder / "ca.crt")}, token="t")
    return Access(kubeconfig=file, master="", service_account=folder, environ={}, clock=Clock())


def test_a_kubeconfig_that_cannot_be_looked_at_ends_the_start_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = Access(kubeconfig=str(tmp_path / ("x" * 300)), master="", service_account=tmp_path, environ={}, clock=Clock())
    with pytest.raises(Fatal, match=r"^kubeconfig .* cannot be read: File name too long$"):
        asyncio.run(long.load())
    access, stat = of_kubeconfig(tmp_path), Path.stat

    def refused(path: Path, **how: bool) -> os.stat_result:
        if path.name == "kubeconfig":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(Fatal, match=r"^kubeconfig .* cannot be read: Permission denied$"):
        asyncio.run(access.load())


def refuse(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Even of root, who may read everything."""
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path == file:
            raise PermissionError(13, "Permission denied", str(file))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
