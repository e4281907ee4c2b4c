"""The node's own sidecar and its gate: what it reads before it tears something down."""

from sidecar.drain.gate.controller import GateController
from sidecar.drain.gate.rules import Build, Clear
from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Status
from sidecar.kube.api import DEPLOYMENTS, MERGE_PATCH, NODES
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json
from tests.harness.drain.gate_scene import NAMESPACE, Scene, play
from tests.harness.drain.samples import DRIVER


class GuardedNode:
    """A node with a gate and its sidecar."""

    def __init__(self, scene: Scene, node: Node) -> None:
        self.scene, self.node = scene, node
        self.gate = GateController(scene.you, scene.settings(node.name), clock=lambda: scene.now, wall=scene.wall)
        self.pods: list[Pod] = []

    async def look(self, seconds: float) -> type:
        self.scene.now += seconds
        node = Node.of(await self.scene.you.get(NODES, self.node.name))
        decision = await self.gate.step(self.scene.picture(node, Status.FALSE, Status.FALSE), self.pods)
        return type(decision)

    async def ready(self, guards: int) -> None:
        name, status = names.guard("n0", self.node.uid, DRIVER), {"status": {"replicas": 1, "readyReplicas": guards}}
        await self.scene.you.patch(DEPLOYMENTS, name, status, content_type=MERGE_PATCH, namespace=NAMESPACE, subresource="status")

    def guard_pod(self, *, meta: Json | None = None, status: Json | None = None) -> Pod:
        labels = {names.GUARDED_NODE: self.node.uid, names.GUARDED_FOR: DRIVER}
        its = {"name": "guard", "namespace": NAMESPACE, "labels": labels, **(meta or {})}
        return Pod.of({"metadata": its, "spec": {"nodeName": "n0"}, "status": {"phase": "Running", **(status or {})}})

    async def taint(self, key: str) -> None:
        taints = {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
        await self.scene.you.patch(NODES, self.node.name, taints, content_type=MERGE_PATCH)

    async def tolerated(self) -> list[str]:
        (deployment,) = await self.scene.all(DEPLOYMENTS)
        return [item["key"] for item in deployment["spec"]["template"]["spec"]["tolerations"]]


def test_a_guard_that_cannot_come_back_gets_another_template_once() -> None:
    async def story(scene: Scene) -> None:
        guarded = GuardedNode(scene, await scene.guarded("n0"))
        await guarded.ready(1)
        await guarded.taint("dedicated")
        assert await guarded.look(0) is Rest
        await guarded.ready(0)
        assert [await guarded.look(70) for _ in range(4)] == [Clear, Build, Rest, Rest]
        assert "dedicated" in await guarded.tolerated()
        await guarded.taint("node.kubernetes.io/disk-pressure")
        assert [await guarded.look(70) for _ in range(2)] == [Rest, Rest]

    play(story)


def test_a_guard_that_a_drainer_may_wait_for_is_not_torn_away() -> None:
    def case(pod: dict[str, Json], stays: bool) -> None:
        async def story(scene: Scene) -> None:
            guarded = GuardedNode(scene, await scene.guarded("n0"))
            guarded.pods = [guarded.guard_pod(**pod)]
            await guarded.ready(1)
            await guarded.taint("dedicated")
            await guarded.ready(0)
            assert await guarded.look(0) is (Rest if stays else Clear)

        play(story)

    for pod, stays in [
        ({}, True),  # not-ready-as-its-kubelet-is-silent
        ({"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),  # about-to-end
        ({"status": {"phase": "Failed"}}, False),  # ended
        ({"meta": {"namespace": "elsewhere"}}, False),  # somebody-elses
    ]:
        case(pod, stays)


def test_a_guard_that_vanishes_has_the_gate_read_anew_at_once() -> None:
    """Somebody deleted its Deployment: until it is made again nobody who drains the node is held."""

    async def story(scene: Scene) -> None:
        guarded = GuardedNode(scene, await scene.guarded("n0"))
        guarded.pods = [guarded.guard_pod()]
        assert await guarded.look(0) is Rest
        name = names.guard("n0", guarded.node.uid, DRIVER)
        await scene.you.delete(DEPLOYMENTS, name, namespace=NAMESPACE)
        guarded.pods = []
        assert await guarded.look(1) is Build
        assert len(await scene.all(DEPLOYMENTS)) == 1
        assert await guarded.look(1) is Rest
        # The guard's pod is yet to come: that is no reason to read at each look.
        await scene.you.delete(DEPLOYMENTS, name, namespace=NAMESPACE)
        assert [await guarded.look(1) for _ in range(2)] == [Rest, Rest]

    play(story)
