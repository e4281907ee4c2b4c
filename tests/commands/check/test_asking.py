"""Whatever is refused, or does not answer: the rest is checked, and nobody is told that what was not asked is well."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hack.sim.cluster import ApiServer, Call, InProcessApi
from sidecar.commands.check.asking_io import Place, look
from sidecar.commands.check.findings import NotAsked
from sidecar.commands.check.judging import judge
from sidecar.commands.check.lines import Line, as_text
from sidecar.kube.api import CLASSES, CSI_DRIVERS, CSI_NODES, DAEMON_SETS, NAMESPACES, NODES
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from tests.harness.cluster_tools import new_cluster

DRIVER = "local.example"
Hook = Callable[[int], ApiError | None]


def cluster() -> ApiServer:
    made = new_cluster()
    sidecar = {
        "name": "csi-provisioner",
        "image": "csi-node-sidecar:v1",
        "args": ["--node-deployment", f"--csi-address=/{DRIVER}/csi.sock"],
    }
    pod = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [sidecar]}}
    made.create(NAMESPACES, {"metadata": {"name": "storage"}})
    made.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {}})
    made.create(CLASSES, {"metadata": {"name": "fast"}, "provisioner": DRIVER})
    made.create(NODES, {"metadata": {"name": "n1"}})
    made.create(CSI_NODES, {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "n1"}]}})
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": pod}
    made.create(DAEMON_SETS, {"metadata": {"name": "d", "namespace": "storage"}, "spec": spec}, namespace="storage")
    return made


class Dated(InProcessApi):
    async def version_and_date(self) -> tuple[str, str]:
        return await self.server_version(), ""


def checked(fails: Hook) -> tuple[int, tuple[Line, ...]]:
    """How often it asked, and what it says. `fails` is given the number of the request."""
    asked: list[Call] = []

    async def before(call: Call) -> None:
        asked.append(call)
        if error := fails(len(asked)):
            raise error

    opened: Any = SimpleNamespace(kube=Dated(cluster(), before=before))
    place = Place(DRIVER, False, "", "", "", "csi-node-sidecar", "", NotAsked("not given"))
    told = tuple(judge(asyncio.run(look(opened, place))))
    return len(asked), told


def test_where_nothing_may_be_asked_nobody_is_told_that_all_is_well() -> None:
    _, told = checked(lambda number: Forbidden("forbidden", status=403) if number > 1 else None)
    text = as_text(told, encoding="utf-8")
    assert text.splitlines()[-1].startswith("Nothing wrong in what could be asked, 8 could not be asked")
    assert "no container of our image was found" not in text
    assert "! flags         could not be asked: which containers there are is not known (forbidden)" in text


@pytest.mark.parametrize("error", [Forbidden("forbidden", status=403), Unavailable("timeout")])
def test_whichever_answer_is_missing_the_rest_is_told(error: ApiError) -> None:
    count, all_of_it = checked(lambda number: None)
    checks = {line.check for line in all_of_it}
    for missing in range(2, count + 1, 5):
        _, told = checked(lambda number, missing=missing: error if number == missing else None)  # type: ignore[misc]
        assert checks <= {line.check for line in told}, missing
