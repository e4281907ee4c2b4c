"""Where the API server is and who we are: `open_client` gives a `KubeClient`, which is `KubeApi`. The only `import kubernetes`.

Of the library three things are used: its loaders for kubeconfig and for the service account, its Configuration, and the TLS
context its ApiClient builds from that. Its typed APIs are never touched (CoreV1Api costs 25 MiB and half a second), nor its
watches and informers, which turn a broken server into thousands of requests a second.
"""

import asyncio
import logging
import os
import random
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubernetes.aio import config as loaders
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

import sidecar
from sidecar.engine.limiter import TokenBucket
from sidecar.errors import Fatal
from sidecar.kube.gathering import SHORTEST
from sidecar.kube.proxy import proxy_for
from sidecar.kube.transport import Limiter, Observer, Sleep, Transport
from sidecar.kube.verbs import Kinds, KubeClient

log = logging.getLogger("sidecar.kube")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# A server that keeps saying 401 must not make us read files, or run an exec plug-in, at every request.
_RELOAD_PAUSE = 10.0
_CA_LOOK_PAUSE = 60.0


class _Access:
    """`transport.Access` by the library's configuration, which `load` fills in; it is filled in again on doubt."""

    def __init__(self, load: "_Loader", *, environ: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._load = load
        self._environ = environ
        self._clock = clock
        self._loaded_at = self._looked_at = clock()
        self._lock = asyncio.Lock()
        self._files: tuple[object, ...] = ()
        self._configuration: Any = None
        self._tls: ssl.SSLContext | None = None
        self._proxy: str | None = None

    async def load(self) -> None:
        configuration = await self._load()
        # Go's TLS, and so every other client of the cluster, accepts CAs that OpenSSL's strict mode (default since Python 3.13) refuses.
        configuration.disable_strict_ssl_verification = True
        self._files = _fingerprint(configuration)
        self._tls = self._load.tls(configuration)
        self._configuration = configuration
        self._proxy = configuration.proxy or proxy_for(self.server, self._environ)
        self._loaded_at = self._looked_at = self._clock()

    @property
    def server(self) -> str:
        return str(self._configuration.host)

    @property
    def tls(self) -> ssl.SSLContext:
        assert self._tls is not None
        return self._tls

    @property
    def tls_server_name(self) -> str | None:
        return self._configuration.tls_server_name or None

    @property
    def proxy(self) -> str | None:
        return self._proxy

    async def authorization(self) -> str:
        await self._look_at_certificates()
        settings = await self._configuration.auth_settings()
        # A token file that ends in a newline would be refused as a header.
        return str((settings.get("BearerToken") or {}).get("value") or "").strip()

    async def doubt(self, error: Exception) -> None:
        if self._clock() - self._loaded_at >= _RELOAD_PAUSE:
            await self._reload(str(error))

    async def _look_at_certificates(self) -> None:
        """The cluster's CA is replaced in place while we run; a TLS context has read it once and for all."""
        if self._clock() - self._looked_at < _CA_LOOK_PAUSE:
            return
        self._looked_at = self._clock()
        if _fingerprint(self._configuration) != self._files:
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


def _fingerprint(configuration: Any) -> tuple[object, ...]:
    """Changes when a certificate file does. Mounted secrets are swapped by a symbolic link, which stat follows."""
    return tuple(_stat(path) for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file))


def _stat(path: str | None) -> object:
    if not path:
        return None
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


class _Loader:
    """Fills in a Configuration: by kubeconfig, by --master alone, or by the pod's service account."""

    def __init__(self, *, kubeconfig: str, master: str, service_account: Path, environ: Mapping[str, str]) -> None:
        self._kubeconfig = kubeconfig
        self._master = master
        self._service_account = service_account
        self._environ = environ

    async def __call__(self) -> Any:
        configuration = Configuration()
        if self._kubeconfig:
            await self._from_kubeconfig(configuration)
        elif not self._master:
            self._from_service_account(configuration)
        if self._master:
            configuration.host = _with_scheme(self._master, tls=bool(configuration.ssl_ca_cert or configuration.cert_file))
        configuration.host = configuration.host.rstrip("/")
        if why := _why_no_server(configuration.host):
            address = configuration.host.rpartition("@")[2]  # what stands before it may be a password
            raise Fatal(f"the API server's address {address!r} cannot be used: {why}; it looks like https://host:6443")
        return configuration

    def tls(self, configuration: Any) -> ssl.SSLContext:
        """The library's, or Fatal that names what was wrong."""
        try:
            context: ssl.SSLContext = ApiClient(configuration=configuration).rest_client.ssl_context
        except (OSError, ValueError) as error:  # the TLS library's are OSErrors
            raise Fatal(f"{self._culprit(configuration)} cannot be used: {' '.join(str(error).split())}") from error
        return context

    def _culprit(self, configuration: Any) -> str:
        """Which file or entry the TLS library stumbled over. What stands in a kubeconfig itself it was given as a nameless file."""
        try:
            ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
        except (OSError, ValueError):
            entry = "certificate-authority"
        else:
            entry = "client-certificate or client-key"
        return f"kubeconfig {self._kubeconfig}: its {entry}" if self._kubeconfig else str(configuration.ssl_ca_cert)

    async def _from_kubeconfig(self, configuration: Any) -> None:
        if not _any(self._kubeconfig, Path.is_file):
            raise Fatal(f"kubeconfig {self._kubeconfig}: {'is a directory' if _any(self._kubeconfig, Path.is_dir) else 'no such file'}")
        configuration.host = ""
        try:
            await loaders.load_kube_config(self._kubeconfig, client_configuration=configuration, persist_config=False)
        except (AttributeError, LookupError, TypeError) as error:  # what the library raises when it stumbles over a structure
            raise Fatal(f"kubeconfig {self._kubeconfig} cannot be used: it is empty, or its content is no kubeconfig") from error
        except Exception as error:  # a malformed file provokes all sorts of errors
            raise Fatal(f"kubeconfig {self._kubeconfig} cannot be used: {' '.join(str(error).split())}") from error
        if not configuration.host and not self._master:
            raise Fatal(f"kubeconfig {self._kubeconfig} cannot be used: its current context names no server")

    def _from_service_account(self, configuration: Any) -> None:
        loader = InClusterConfigLoader(
            token_filename=str(self._service_account / "token"),
            cert_filename=str(self._service_account / "ca.crt"),
            environ=self._environ,
        )
        try:
            loader.load_and_set(configuration)
        except (loaders.ConfigException, OSError, ValueError) as error:
            raise Fatal(
                f"no way to the API server: neither --kubeconfig (or KUBECONFIG) nor --master is set, and this is no pod with a "
                f"service account token ({str(error).rstrip('.')}): set --kubeconfig, or run in a pod"
            ) from error


def _any(paths: str, is_one: Callable[[Path], bool]) -> bool:
    """KUBECONFIG may be a list; the loader skips what is missing, and with nothing left fails beyond recognition."""
    return any(is_one(Path(path).expanduser()) for path in paths.split(os.pathsep) if path)


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


def _with_scheme(master: str, *, tls: bool) -> str:
    """As client-go completes a bare host."""
    return master if "://" in master else f"{'https' if tls else 'http'}://{master}"


async def open_client(
    *,
    kubeconfig: str = "",
    master: str = "",
    qps: float = 5.0,
    burst: int = 10,
    request_timeout: float = 30.0,
    watch_silence: float = 135.0,
    watch_seconds: tuple[int, int] = (290, 600),
    user_agent: str = f"csi-node-sidecar/{sidecar.__version__}",
    observer: Observer | None = None,
    longest_gathering: float = SHORTEST,
    service_account: Path = SERVICE_ACCOUNT,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    sleep: Sleep = asyncio.sleep,
    rng: Callable[[], float] = random.random,
) -> "KubeClient":
    """A client; `Fatal` when there is nothing to connect with. No request is made yet. Close it with `aclose`.

    `watch_silence`: a watch that hears nothing for so long is broken off. Bookmarks come every 60 to 75 s, but the first one
    may be left out where nothing changes. `longest_gathering`: for so long what a busy watch says may wait to be read together.
    `request_timeout` counts from the moment the limiter lets a request through.
    """
    loader = _Loader(kubeconfig=kubeconfig, master=master, service_account=service_account, environ=environ)
    access = _Access(loader, environ=environ, clock=clock)
    await access.load()
    observer = observer or Observer()
    transport = Transport(
        access,
        user_agent=user_agent,
        request_timeout=request_timeout,
        watch_silence=watch_silence,
        observer=observer,
        longest_gathering=longest_gathering,
        clock=clock,
        wall=wall,
    )

    def limiter(qps: float, burst: int) -> Limiter:
        return Limiter(TokenBucket(qps, burst), clock=clock, sleep=sleep, rng=rng, on_throttled=observer.on_throttled)

    def watch_for() -> int:
        """Nodes that started together must not all end their watches together."""
        shortest, longest = watch_seconds
        return int(shortest + rng() * (longest - shortest))

    return KubeClient(transport, limiter, qps=qps, burst=burst, watch_for=watch_for, kinds=Kinds(clock))


__all__ = ["SERVICE_ACCOUNT", "KubeClient", "Observer", "open_client"]
