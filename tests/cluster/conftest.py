"""One cluster with real kubelets for all tests here; where the machine cannot hold one, they are skipped aloud, and in CI they fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from hack.kubelets import needs
from hack.kubelets.cluster import Cluster
from tests.cluster.scenes import DEPLOY, IMAGES, Change, Installation, image_archives, kustomized, nothing
from tests.harness.not_tested import not_tested

T = TypeVar("T", bound=Installation)


class Shared:
    """The cluster of all tests that need no other. One at a time is enough for a machine: who needs another takes this one down."""

    def __init__(self) -> None:
        self.running: Cluster | None = None

    def up(self, nodes: int = 3) -> Cluster:
        """It is leashed: killed though we may be, it ends with us."""
        if self.running is not None and len(self.running.nodes) != nodes:
            self.down()
        if self.running is None:
            self.running = Cluster.up(nodes=nodes, name="tests", leashed=True)
            self.running.load(*image_archives(*IMAGES))
        return self.running

    def down(self) -> None:
        if self.running is not None:
            self.running.down()
            self.running = None


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    try:
        needs.check()
    except needs.MachineLacks as lack:
        not_tested("a cluster on real kubelets", str(lack))
    found = Shared()
    yield found
    found.down()


@pytest.fixture
def alone(shared: Shared) -> None:
    """The test makes a cluster of its own."""
    shared.down()


@pytest.fixture
def cluster(shared: Shared) -> Cluster:
    return shared.up()


@pytest.fixture
def deploy(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Callable[[T], T]]:
    """Installs for one test, with a namespace of its own. Afterwards nothing is left of that, or the next test gets another cluster."""
    scenes: list[Installation] = []

    def install(scene: T) -> T:
        request.node.scene = scene
        scenes.append(scene)
        scene.install()
        return scene

    yield install
    try:
        for scene in scenes:
            scene.uninstall()
    except BaseException:
        shared.down()
        raise


@pytest.fixture
def base(cluster: Cluster, deploy: Callable[[Installation], Installation]) -> Callable[..., Installation]:
    """deploy/base, or what a test changes of it."""

    def install(change: Change = nothing) -> Installation:
        objects = kustomized(cluster, DEPLOY / "base")
        change(objects)
        return deploy(Installation(cluster, "scenario", objects))

    return install


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows what the nodes logged last: their disks are gone when somebody wants to look."""
    outcome: Any = yield
    report = outcome.get_result()
    scene: Installation | None = getattr(item, "scene", None)
    if report.when == "call" and report.failed and scene is not None:
        for node in scene.cluster.nodes:
            lines = (node.place.disk / "var/log/kubelet.log").read_text(errors="replace").splitlines()
            report.sections.append((f"kubelet of {node.name}", "\n".join(line[:400] for line in lines[-40:])))
            with contextlib.suppress(Exception):  # the cluster may be in pieces, and what failed is to be told all the same
                said = scene.logs(node.name, "--tail=60").splitlines()
                report.sections.append((f"sidecar on {node.name}", "\n".join(line[:400] for line in said)))
