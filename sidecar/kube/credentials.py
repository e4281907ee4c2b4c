"""Where the API server is, how to trust it and who we are: from a pod's service account, a kubeconfig or --master.

`Access` is `transport.Access`: it reads everything afresh when there is doubt. What reads a kubeconfig is in `kubeconfig`.
"""

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from sidecar.errors import Fatal
from sidecar.kube.proxy import proxy_for

log = logging.getLogger("sidecar.kube")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# A server that keeps saying 401 must not make us read files, or run an exec plug-in, at every request.
_RELOAD_PAUSE = 10.0
_CA_LOOK_PAUSE = 60.0
# A kubelet puts the next token there when a fifth of the time is left, of ten minutes at least.
_TOKEN_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What one reading gave. `authorization` is the header's value, empty without a token; it may raise what reading raises."""

    server: str
    tls: ssl.SSLContext
    authorization: Callable[[], Awaitable[str]]
    is_for_tls: bool = False
    """A server named without a scheme is spoken to by TLS."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Of the certificates, each with the digest of what it held: that was read once and for all, so a change asks for another reading."""
    tls_server_name: str | None = None
    proxy: str | None = None


class Access:
    def __init__(
        self, *, kubeconfig: str, master: str, service_account: Path, environ: Mapping[str, str], clock: Callable[[], float]
    ) -> None:
        self._kubeconfig = kubeconfig
        self._master = master
        self._service_account = service_account
        self._environ = environ
        self._clock = clock
        self._lock = asyncio.Lock()
        self._held: Mapping[str, str] = {}

    async def load(self) -> None:
        """`Fatal` where there is nothing to connect with."""
        found = await self._found()
        if lost := [file for file, held in self._held.items() if held and found.files.get(file) == ""]:
            raise Fatal(f"{', '.join(lost)} cannot be read any more, or holds nothing")
        server = (_complete(self._master, found) if self._master else found.server).rstrip("/")
        if not server:
            raise Fatal(f"kubeconfig {self._kubeconfig} cannot be used: its current context names no server")
        if why := _why_no_server(server):
            address = server.rpartition("@")[2]  # what stands before it may be a password
            raise Fatal(f"the API server's address {address!r} cannot be used: {why}; it looks like https://host:6443")
        self._latest = replace(found, server=server, proxy=found.proxy or proxy_for(server, self._environ))
        self._held = found.files
        self._loaded_at = self._looked_at = self._clock()

    async def _found(self) -> Credentials:
        if self._kubeconfig:
            from sidecar.kube import kubeconfig  # 15 MiB and a third of a second, which a pod need not spend

            return await kubeconfig.read(self._kubeconfig)
        if self._master:
            return Credentials(server="", tls=as_go_trusts(ssl.create_default_context()), authorization=_nobody)
        return _of_service_account(self._service_account, self._environ, self._clock)

    @property
    def server(self) -> str:
        return self._latest.server

    @property
    def tls(self) -> ssl.SSLContext:
        return self._latest.tls

    @property
    def tls_server_name(self) -> str | None:
        return self._latest.tls_server_name

    @property
    def proxy(self) -> str | None:
        return self._latest.proxy

    async def authorization(self) -> str:
        await self._look_at_certificates()
        return await self._latest.authorization()

    async def doubt(self, error: Exception) -> None:
        if self._clock() - self._loaded_at >= _RELOAD_PAUSE:
            await self._reload(str(error))

    async def _look_at_certificates(self) -> None:
        """The cluster's CA is replaced in place while we run; a TLS context has read it once and for all."""
        if self._clock() - self._looked_at < _CA_LOOK_PAUSE:
            return
        self._looked_at = self._clock()
        if any(digest_of(file) != held for file, held in self._held.items()):
            await self._reload("the certificate files changed")

    async def _reload(self, why: str) -> None:
        if self._lock.locked():
            return
        async with self._lock:
            self._loaded_at = self._clock()
            log.info("Reading the API server's address and credentials afresh", extra={"fields": {"why": why}})
            try:
                await self.load()
            except Exception as error:  # noqa: BLE001 - files in the middle of being replaced; what we have may still do
                log.warning("Could not read the credentials afresh", extra={"fields": {"error": str(error)}})


# --- a pod's ----------------------------------------------------------------------------------------------------------


class _TokenFile:
    """The kubelet replaces its content in time. One that cannot be read just now leaves the last one at work, which is valid for long."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock
        self._token = self._read()
        self._due = clock() + _TOKEN_PAUSE

    async def authorization(self) -> str:
        if self._clock() >= self._due:
            try:
                self._token = self._read()
                self._due = self._clock() + _TOKEN_PAUSE
            except (OSError, ValueError) as error:
                self._due = self._clock() + _RELOAD_PAUSE
                log.warning("Could not read the token afresh: the last one stays in use", extra={"fields": {"error": str(error)}})
        return f"Bearer {self._token}"

    def _read(self) -> str:
        token = self._file.read_text().strip()  # a newline at its end would be refused in a header
        if not token:
            raise ValueError(f"{self._file} is empty")
        return token


def _of_service_account(folder: Path, environ: Mapping[str, str], clock: Callable[[], float]) -> Credentials:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    try:
        if not host or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        token = _TokenFile(folder / "token", clock)
    except (OSError, ValueError) as error:
        raise Fatal(
            f"no way to the API server: neither --kubeconfig (or KUBECONFIG) nor --master is set, and this is no pod with a "
            f"service account token ({error}): set --kubeconfig, or run in a pod"
        ) from error
    ca = folder / "ca.crt"
    held = digest_of(str(ca))
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=_tls(ca if held else None),
        authorization=token.authorization,
        files={str(ca): held},
    )


def _tls(ca: Path | None) -> ssl.SSLContext:
    """By this CA, or by those that the system trusts where a pod has none."""
    if ca is None:
        log.warning("The pod has no CA of the cluster: those of the system are trusted")
    try:
        return as_go_trusts(ssl.create_default_context(cafile=ca))
    except (OSError, ValueError) as error:  # the TLS library's are OSErrors
        raise Fatal(f"{ca} cannot be used: {' '.join(str(error).split())}") from error


def as_go_trusts(context: ssl.SSLContext) -> ssl.SSLContext:
    """What every other client of the cluster accepts, OpenSSL must: CAs that its strict mode (default since Python 3.13) refuses, and
    a CA that another one has signed, without that one.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


async def _nobody() -> str:
    return ""


# --- addresses --------------------------------------------------------------------------------------------------------


def _complete(master: str, found: Credentials) -> str:
    """As client-go completes a bare host."""
    return master if "://" in master else f"{'https' if found.is_for_tls else 'http'}://{master}"


def _why_no_server(address: str) -> str:
    """What is wrong with an address is better said at once than retried for ever."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        return "it cannot be read: are its name and password quoted?" if "@" in address else str(error)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "scheme, host or port is missing or none that can be connected to"
    return ""


def digest_of(file: str) -> str:
    """Of what it holds, for a kubelet puts all files of a pod there anew when one has changed; empty where there is nothing to read."""
    try:
        content = Path(file).read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(content).hexdigest() if content.strip() else ""
