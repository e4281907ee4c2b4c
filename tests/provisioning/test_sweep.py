"""Snapshots that nothing is restored from lose our finalizer, and no others."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.kube.api import CLAIMS, SNAPSHOTS, Page, Resource
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from sidecar.provisioning.sweep import SnapshotSweep
from tests.harness import samples
from tests.harness.doors import tools

Json = dict[str, Any]
OURS = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
GROUP = "snapshot.storage.k8s.io"


def snapshot(name: str = "snap", *, finalizers: list[str] | None = None, content: str = "content", leaves: bool = False) -> Json:
    meta = {"name": name, "namespace": "ns", "finalizers": ["other/one", OURS] if finalizers is None else finalizers}
    if leaves:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "status": {"boundVolumeSnapshotContentName": content}}


def restoring(phase: str | None = "Pending", *, namespace: str = "ns", **source: Any) -> Json:
    field_name = "dataSourceRef" if "namespace" in source else "dataSource"
    ref = {"kind": "VolumeSnapshot", "apiGroup": GROUP, "name": "snap", **source}
    return {"metadata": {"name": "claim", "namespace": namespace}, "spec": {field_name: ref}, "status": {"phase": phase} if phase else {}}


@dataclass
class Server:
    snapshots: list[Json] = field(default_factory=lambda: [snapshot()])
    claims: list[Json] = field(default_factory=list)
    driver: str = samples.DRIVER
    refuses: ApiError | None = None
    refuses_writes: list[ApiError] = field(default_factory=list)
    lists: int = 0
    written: list[Json] = field(default_factory=list)

    async def list_page(self, resource: Resource, **_: object) -> Page:
        if self.refuses is not None:
            self.lists += 1
            raise self.refuses
        self.lists += resource == SNAPSHOTS
        return Page({SNAPSHOTS: self.snapshots, CLAIMS: self.claims}[resource], "1", "")

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        if name != "content":
            raise NotFound("no")
        return {"spec": {"driver": self.driver}}

    async def replace(self, resource: Resource, body: bytes, *, name: str, namespace: str = "") -> Json:
        if self.refuses_writes:
            raise self.refuses_writes.pop()

        obj = json.loads(body)
        self.written.append(obj)
        self.snapshots = [obj if item["metadata"]["name"] == name else item for item in self.snapshots]
        return dict(obj)


def swept(server: Server, *, seconds: float = 1000.0, able: Callable[[], bool] = lambda: True, protects_at: float | None = None) -> Server:
    async def main() -> None:
        sweep = SnapshotSweep(tools(server), driver=samples.DRIVER, interval=300.0, able=able)
        if protects_at is not None:
            asyncio.get_running_loop().call_later(protects_at, sweep.protected)
        running = asyncio.create_task(sweep.run())
        await asyncio.wait({running}, timeout=seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())
    return server


def test_K7_K8_what_nothing_is_restored_from_is_released() -> None:
    for claims in [
        [],
        [restoring("Bound")],
        [restoring(name="another")],
        [restoring(namespace="elsewhere")],
        [restoring(apiGroup="foreign")],
        [restoring(kind="PersistentVolumeClaim")],
    ]:
        (written,) = swept(Server(claims=claims)).written
        assert written["metadata"]["finalizers"] == ["other/one"]


def test_K7_K8_what_is_still_to_be_restored_from_is_kept_and_looked_at_again() -> None:
    for claim in [
        restoring("Pending"),
        restoring(None),
        restoring(apiGroup=None),
        {**restoring(namespace="ns"), "metadata": {"name": "c", "namespace": "elsewhere"}},
    ]:
        if claim["metadata"]["namespace"] == "elsewhere":
            claim["spec"] = {"dataSourceRef": {"kind": "VolumeSnapshot", "apiGroup": GROUP, "name": "snap", "namespace": "ns"}}
        server = swept(Server(claims=[claim]))
        assert server.written == [] and server.lists == 3


def test_one_that_we_do_not_protect_is_left_alone() -> None:
    assert swept(Server(snapshots=[snapshot(finalizers=["other/one"])])).written == []


def test_one_without_content_is_released_when_it_leaves() -> None:
    for content in ["", "gone"]:
        (written,) = swept(Server(snapshots=[snapshot(content=content, leaves=True)])).written
        assert written["metadata"]["finalizers"] == ["other/one"]


def test_one_without_content_that_stays_is_left_alone_and_looked_at_again() -> None:
    """Where one was protected, that is: else each node of the cluster would ask for ever."""
    for content in ["", "gone"]:
        server = swept(Server(snapshots=[snapshot(content=content)]), seconds=3600.0)
        assert server.written == [] and server.lists == 1
        server = swept(Server(snapshots=[snapshot(content=content)]), seconds=3600.0, protects_at=1000.0)
        assert server.written == [] and server.lists > 5


def test_snapshots_of_another_driver_are_left_to_its_sidecar() -> None:
    for leaves in [False, True]:
        server = swept(Server(snapshots=[snapshot(leaves=leaves)], driver="another"))
        assert server.written == [] and server.lists == 1


def test_nobody_is_asked_before_the_driver_has_learnt_it_and_what_it_has_begun_is_ended() -> None:
    def able() -> Callable[[], bool]:
        answers = iter((False, False, True))
        return lambda: next(answers, False)

    assert swept(Server(), seconds=740.0, able=able()).lists == 0
    server = swept(Server(refuses_writes=[Conflict("changed")]), seconds=1060.0, able=able())
    assert len(server.written) == 1 and server.lists == 2


def test_a_node_without_a_stake_looks_once() -> None:
    assert swept(Server(), seconds=3600.0).lists == 1


def test_what_could_not_be_written_is_tried_at_the_next_sweep() -> None:
    server = swept(Server(refuses_writes=[Conflict("changed")]))
    assert len(server.written) == 1 and server.lists == 2


def test_K9_without_the_right_or_the_kind_it_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    for refusal in [Forbidden("no"), NotFound("no such API")]:
        caplog.clear()
        assert swept(Server(refuses=refusal), seconds=3600.0).lists == 1
        assert swept(Server(refuses=refusal), seconds=3600.0, protects_at=1000.0).lists == 2
        assert not [item for item in caplog.records if item.levelname in ("WARNING", "ERROR")]


def test_an_outage_is_waited_out() -> None:
    assert swept(Server(refuses=Unavailable("away")), seconds=3600.0).lists > 5
