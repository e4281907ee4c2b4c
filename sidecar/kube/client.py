"""`open_client` opens the door to the API server: it returns a `KubeClient`, which is a `KubeApi`."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import sidecar
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.credentials import SERVICE_ACCOUNT, Access
from sidecar.kube.read_batching import SHORTEST
from sidecar.kube.transport import Limiter, Observer, Sleep, Transport
from sidecar.kube.verbs import Kinds, KubeClient

REQUEST_TIMEOUT: Final = 30.0


async def open_client(
    *,
    kubeconfig: str = "",
    context: str = "",
    master: str = "",
    qps: float = 5.0,
    burst: int = 10,
    request_timeout: float = REQUEST_TIMEOUT,
    watch_silence: float = 135.0,
    watch_seconds: tuple[int, int] = (290, 600),
    user_agent: str = f"csi-node-sidecar/{sidecar.__version__}",
    observer: Observer | None = None,
    longest_read_delay: float = SHORTEST,
    service_account: Path = SERVICE_ACCOUNT,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    sleep: Sleep = asyncio.sleep,
    rng: Callable[[], float] = random.random,
) -> "KubeClient":
    """A client, which has sent nothing yet; close it with `aclose`. `Fatal` where an address or credentials are missing.

    `watch_silence`: a watch without a byte for so long is closed. Bookmarks come every 60 to 75 s, but the first one may be missing where
    nothing changes. `longest_read_delay`: events of a busy watch may wait so long, to be read together. `request_timeout` begins when the
    limiter lets a request through; it may be infinite.
    """
    access = Access(kubeconfig=kubeconfig, context=context, master=master, service_account=service_account, environ=environ, clock=clock)
    await access.load()
    observer = observer or Observer()
    transport = Transport(
        access,
        user_agent=user_agent,
        request_timeout=request_timeout,
        watch_silence=watch_silence,
        observer=observer,
        longest_read_delay=longest_read_delay,
        clock=clock,
        wall=wall,
    )

    def limiter(qps: float, burst: int) -> Limiter:
        return Limiter(TokenBucket(qps, burst), clock=clock, sleep=sleep, rng=rng, on_throttled=observer.on_throttled)

    def watch_for() -> int:
        """Random, so that nodes that started together do not renew their watches together."""
        shortest, longest = watch_seconds
        return int(shortest + rng() * (longest - shortest))

    return KubeClient(transport, limiter, qps=qps, burst=burst, watch_for=watch_for, kinds=Kinds(clock), reached=access)


__all__ = ["REQUEST_TIMEOUT", "SERVICE_ACCOUNT", "KubeClient", "Observer", "open_client"]
