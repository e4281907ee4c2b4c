"""Reads the API server's address, the CA to trust and our credentials: from a pod's service account, a kubeconfig or --master.

`Access` is `transport.Access`: it reads everything again when the server refuses our credentials or a certificate file has changed.
Kubeconfigs are read by `kubeconfig`.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from sidecar.errors import Fatal
from sidecar.kube.mounted_files_io import digest_of, token_of, trouble
from sidecar.kube.proxy import proxy_for

log = logging.getLogger("sidecar.kube")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# A server that always answers 401 must not make us read files or run an exec plug-in for every request.
_RELOAD_PAUSE = 10.0
_CA_LOOK_PAUSE = 60.0
# A kubelet replaces a token when a fifth of its lifetime is left, and lifetimes are ten minutes or more.
_TOKEN_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """The result of reading once. `authorization` gives the header's value, empty without a token; it may raise what reading raises."""

    server: str
    tls: ssl.SSLContext
    authorization: Callable[[], Awaitable[str]]
    is_for_tls: bool = False
    """Whether a server named without a scheme is reached by TLS."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The certificate files, each with the digest of its content. A TLS context reads them once, so a changed file means reading again."""
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str = ""
    """Of the kubeconfig's context: where people mean things to be that they name without a namespace."""
    context: str | None = None
    """The kubeconfig's; None: there is no kubeconfig."""


class Access:
    def __init__(
        self,
        *,
        kubeconfig: str,
        master: str,
        service_account: Path,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        context: str = "",
    ) -> None:
        """`context`: that one of the kubeconfig; empty: its current one."""
        self._kubeconfig = kubeconfig
        self._context = context
        self._master = master
        self._service_account = service_account
        self._environ = environ
        self._clock = clock
        self._lock = asyncio.Lock()
        self._held: Mapping[str, str] = {}
        self._told_unverified = False
        self._files_trouble = _Trouble("Could not read the certificates again: the previous ones stay in use")
        self._trouble = _Trouble("Could not read the credentials again: the previous ones stay in use")

    async def load(self) -> None:
        """`Fatal` where there is nothing to connect with."""
        found = await self._found()
        if lost := [file for file, held in self._held.items() if held and found.files.get(file) == ""]:
            raise Fatal(_gone(lost))
        server = (_complete(self._master, found) if self._master else found.server).rstrip("/")
        if not server:
            raise Fatal(f"kubeconfig {self._kubeconfig} cannot be used: its context names no server")
        if why := _why_no_server(server):
            address = server.rpartition("@")[2]  # without user name and password
            raise Fatal(f"the API server's address {address!r} cannot be used: {why}; it looks like https://host:6443")
        self._latest = replace(found, server=server, proxy=found.proxy or proxy_for(server, self._environ))
        self._tell_if_unverified()
        self._held = found.files
        self._trouble.over()
        self._loaded_at = self._looked_at = self._clock()

    def _tell_if_unverified(self) -> None:
        is_unverified = self._latest.server.startswith("https:") and self._latest.tls.verify_mode == ssl.CERT_NONE
        if is_unverified and not self._told_unverified:
            self._told_unverified = True
            fields = {"server": self._latest.server.rpartition("@")[2]}
            log.warning(
                "The API server's certificate is not verified: the kubeconfig says insecure-skip-tls-verify", extra={"fields": fields}
            )

    async def _found(self) -> Credentials:
        if self._kubeconfig:
            from sidecar.kube import kubeconfig  # with YAML, which a pod with a service account needs not

            return await kubeconfig.read(self._kubeconfig, context=self._context, clock=self._clock)
        if self._master:
            return Credentials(server="", tls=as_go_trusts(ssl.create_default_context()), authorization=_nobody)
        return _of_service_account(self._service_account, self._environ, self._clock)

    @property
    def server(self) -> str:
        return self._latest.server

    @property
    def namespace(self) -> str:
        return self._latest.namespace

    @property
    def context(self) -> str | None:
        return self._latest.context

    @property
    def in_pod(self) -> bool:
        return self._latest.context is None and not self._master

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
        """Read everything again if a certificate file has changed: the cluster's CA may be replaced while we run."""
        if self._clock() - self._looked_at < _CA_LOOK_PAUSE:
            return
        self._looked_at = self._clock()
        try:
            seen = {file: digest_of(file) for file in self._held}
        except OSError as error:
            self._files_trouble.tell(trouble(error))
            return
        if lost := [file for file, held in self._held.items() if held and not seen[file]]:
            self._files_trouble.tell(_gone(lost))
            return
        self._files_trouble.over()
        if seen != self._held:
            await self._reload("the certificate files changed")

    async def _reload(self, why: str) -> None:
        if self._lock.locked():
            return
        async with self._lock:
            self._loaded_at = self._clock()
            try:
                await self.load()
                log.info("Read the API server's address and credentials again", extra={"fields": {"why": why}})
            except Exception as error:  # noqa: BLE001 - the files may be half replaced, and what was read before may still work
                self._trouble.tell(str(error))


class _Trouble:
    """Trouble that may last is told once, however often it is met, and again after it was over."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._told = ""

    def tell(self, error: str) -> None:
        if error != self._told:
            self._told = error
            log.warning(self._message, extra={"fields": {"error": error}})

    def over(self) -> None:
        self._told = ""


def _gone(files: Sequence[str]) -> str:
    return f"{', '.join(files)} is not there any more, or holds nothing"


# --- a pod's ----------------------------------------------------------------------------------------------------------


class TokenFile:
    """A token that the kubelet replaces in time. If the file cannot be read, the previous token stays in use: it is valid for a while."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock
        self._token = self._read()
        self._due = clock() + _TOKEN_PAUSE
        self._trouble = _Trouble("Could not read the token again: the previous one stays in use")

    async def authorization(self) -> str:
        if self._clock() >= self._due:
            try:
                self._token = self._read()
                self._due = self._clock() + _TOKEN_PAUSE
                self._trouble.over()
            except (OSError, ValueError) as error:
                self._due = self._clock() + _RELOAD_PAUSE
                self._trouble.tell(trouble(error) if isinstance(error, OSError) else str(error))
        return f"Bearer {self._token}"

    def _read(self) -> str:
        token = token_of(self._file)
        if token is None:
            raise ValueError(f"{self._file} is not there")
        return token


def _of_service_account(folder: Path, environ: Mapping[str, str], clock: Callable[[], float]) -> Credentials:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    ca = folder / "ca.crt"
    try:
        if not host or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        token = TokenFile(folder / "token", clock)
        held = digest_of(str(ca))
    except OSError as error:
        raise Fatal(trouble(error)) from error
    except ValueError as error:
        raise Fatal(
            f"no way to the API server: neither --kubeconfig (or KUBECONFIG) nor --master is set, and this is no pod with a "
            f"service account token ({error}): set --kubeconfig, or run in a pod"
        ) from error
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=_tls(ca, is_there=bool(held)),
        authorization=token.authorization,
        files={str(ca): held},
    )


def _tls(ca: Path, *, is_there: bool) -> ssl.SSLContext:
    """Trust this CA alone. Where there is none, those that the system trusts, as other clients do: a controller manager that knows no CA
    publishes an empty ca.crt, and the API server's certificate is one that everybody trusts.
    """
    if not is_there:
        log.warning("The service account has no CA, its ca.crt is missing or empty: the CAs of the system are trusted instead")
    try:
        return as_go_trusts(ssl.create_default_context(cafile=ca if is_there else None))
    except (OSError, ValueError) as error:  # the TLS library's are OSErrors
        raise Fatal(f"{ca} cannot be used: {' '.join(str(error).split())}") from error


def as_go_trusts(context: ssl.SSLContext) -> ssl.SSLContext:
    """Accept what other clients of the cluster accept, which are written in Go: a CA that OpenSSL's strict mode (the default since Python
    3.13) refuses, and an intermediate CA without its root. Refuse what they refuse: a name that only the subject of a certificate has.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])  # a proxy that terminates TLS could choose HTTP/2 for a client that names nothing
    return context


async def _nobody() -> str:
    return ""


# --- addresses --------------------------------------------------------------------------------------------------------


def _complete(master: str, found: Credentials) -> str:
    """With a scheme, as client-go adds one to a bare host."""
    return master if "://" in master else f"{'https' if found.is_for_tls else 'http'}://{master}"


def _why_no_server(address: str) -> str:
    """What is wrong with an address, or nothing. Found at the start, because no retry would mend it."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        return "it cannot be read: are its user name and password percent-encoded?" if "@" in address else str(error)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "its scheme, host or port is missing or cannot be used"
    return ""
