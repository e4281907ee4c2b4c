"""What a tenant with thousands of objects does to the emptying of a node that others use too."""

from typing import Any, Final

from hack.sim.cluster import Call
from sidecar.kube.api import NAMESPACES, STATEFUL_SETS
from sidecar.kube.errors import ApiError
from tests.harness import emptying
from tests.harness.drain.simulated import EVACUATE, Story, change, wait
from tests.harness.emptying import Evictions, owner, run
from tests.harness.replicas_anew import unready

TENANT: Final = "a-tenant"


async def a_set(bench: Story, name: str, namespace: str, *, replicas: int = 2) -> dict[str, Any]:
    """As the owner of pods."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template}
    made = await bench.you.create(STATEFUL_SETS, {"metadata": {"name": name}, "spec": spec}, namespace=namespace)
    return owner(name, made["metadata"]["uid"])


def test_many_sets_that_lack_a_pod_keep_no_other_tenants_pod_here() -> None:
    """More than one look asks about; the other tenant's set is ready only when all have been asked about."""
    requests: list[Call] = []

    def count(call: Call) -> ApiError | None:
        requests.append(call) if call.verb != "watch" else None
        return None

    seen = Evictions(count)

    async def story(bench: Story) -> None:
        for namespace in (TENANT, "well"):
            await bench.you.create(NAMESPACES, {"metadata": {"name": namespace}})
        for number in range(40):
            await run(bench, f"s-{number:02}-0", namespace=TENANT, of=await a_set(bench, f"s-{number:02}", TENANT))
        of = await a_set(bench, "db", "well")
        await run(bench, "z-0", namespace="well", of=of)
        await run(bench, "z-1", namespace="well", of=of, nodeName="n1")
        await wait(bench, 20)
        await unready(bench, "z-1", namespace="well")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        requests.clear()
        await wait(bench, 60)
        assert seen.calls == []
        assert 0 < len(requests) < 420
        await unready(bench, "z-1", False, namespace="well")
        await wait(bench, 100)
        assert seen.calls == ["z-0"]

    emptying.play(story, seen)
