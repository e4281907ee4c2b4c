"""The simulated API server with what tenants wrote, as a process: `python -m hack.benchmarks.hostile.api_server FOLDER FILL COUNT`.

It writes `FOLDER/kubeconfig` when it serves, and which Secrets are read. With the fill `bomb` its lists of claims are small gzip bodies
that unfold to 300 MB; with `refusing` it has claims that are selected, and takes no PersistentVolume. At SIGUSR1 its history is compacted
and all watches end, at SIGUSR2 the largest objects change.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

from aiohttp import web

from hack.benchmarks.hostile.objects import change_largest, compact, fill
from hack.sim.cluster import Cluster
from hack.sim.cluster.serve import Certificate, Served, self_signed

BOMB: Final = "bomb"
REFUSING: Final = "refusing"
SECRETS_READ: Final = "secrets-read"
"""The name of the file."""
_UNFOLDED: Final = 300_000_000


class _Noting(Served):
    """Notes which Secrets are read."""

    def __init__(self, cluster: Cluster, *, certificate: Certificate, notes: Path) -> None:
        super().__init__(cluster, certificate=certificate)
        self._notes = notes

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "/secrets/" in request.path:
            with self._notes.open("a") as file:
                file.write(f"{request.path}\n")
        return await super()._answer(request)


class _Bomb(_Noting):
    """Its lists of claims are not what they seem."""

    _body = gzip.compress(b'{"metadata":{"resourceVersion":"1"},"items":[' + b" " * _UNFOLDED + b"]}", compresslevel=9)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/persistentvolumeclaims") and "watch" not in request.query:
            return web.Response(body=self._body, content_type="application/json", headers={"Content-Encoding": "gzip"})
        return await super()._answer(request)


class _Refusing(_Noting):
    """It takes no PersistentVolume."""

    _body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422, "message": "refused"})

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST" and request.path.endswith("/persistentvolumes"):
            return web.Response(body=self._body, status=422, content_type="application/json")
        return await super()._answer(request)


async def serve(folder: Path, what: str, count: int) -> None:
    cluster = Cluster(clock=time.time, rng=random.random)
    fill(cluster, {BOMB: "nothing", REFUSING: "selected"}.get(what, what), count)
    kind = {BOMB: _Bomb, REFUSING: _Refusing}.get(what, _Noting)
    served = kind(cluster, certificate=self_signed(folder), notes=folder / SECRETS_READ)
    served.demand_token()
    await served.start(0)
    marks = map(str, itertools.count())

    def begin_anew() -> None:
        compact(cluster, next(marks))
        served.cut_watches()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, begin_anew)
    loop.add_signal_handler(signal.SIGUSR2, lambda: change_largest(cluster, next(marks)))
    served.kubeconfig(folder / "draft")
    (folder / "draft").rename(folder / "kubeconfig")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
