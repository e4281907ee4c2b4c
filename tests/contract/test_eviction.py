"""Every answer of `eviction/rules.TABLE`, provoked by `Evictor` itself."""

import asyncio
import time
from typing import Any

import pytest

from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import BUDGET_PAUSE, NEXT_PASS, TABLE, Answer, May, Result
from sidecar.kube.api import BUDGETS, NAMESPACES, NODES, PODS
from sidecar.kube.client import KubeClient, open_client
from sidecar.kube.errors import NotFound
from tests.contract.conftest import Server
from tests.contract.objects import Json, budget, make_account, pod
from tests.harness.coroutines import until

EVICTS: Json = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
PROVOKED: set[Result] = set()


class App:
    """A namespace with pods, and who evicts them."""

    def __init__(self, api: KubeClient, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    async def pod(self, name: str = "p", *, ready: bool = True, **spec: Any) -> May:
        wanted = pod(name, labels={"app": "x"})
        made = await self.api.create(PODS, wanted | {"spec": wanted["spec"] | spec}, namespace=self.namespace)
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": "Running", "conditions": conditions}
        await self.api.replace(PODS, made | {"status": status}, name=name, namespace=self.namespace, subresource="status")
        return May(self.namespace, name, made["metadata"]["uid"])

    async def waiting(self, name: str = "p") -> May:
        """A pod without a node, as it is now."""
        made = await self.api.create(PODS, pod(name, labels={"app": "x"}), namespace=self.namespace)
        return May(self.namespace, name, made["metadata"]["uid"])

    async def budget(self, allowed: int | None, *, name: str = "app", healthy: int = 1, **more: str) -> None:
        """`allowed` None: nobody has counted yet."""
        wanted = budget(name, {"app": "x"})
        made = await self.api.create(BUDGETS, wanted | {"spec": wanted["spec"] | more}, namespace=self.namespace)
        if allowed is None:
            return
        status: Json = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": 1}
        status["observedGeneration"] = made["metadata"]["generation"]
        await self.api.replace(BUDGETS, made | {"status": status}, name=name, namespace=self.namespace, subresource="status")

    async def allowed(self) -> int:
        return int((await self.api.get(BUDGETS, "app", namespace=self.namespace))["status"]["disruptionsAllowed"])

    async def evict(self, wanted: May, *, as_: KubeClient | None = None) -> Answer:
        answer = await Evictor(as_ or self.api, clock=time.monotonic, rng=lambda: 0.0).evict(wanted)
        PROVOKED.add(answer.result)
        return answer

    async def is_untouched(self, wanted: May) -> bool:
        meta = (await self.api.get(PODS, wanted.name, namespace=self.namespace))["metadata"]
        return meta["uid"] == wanted.uid and "deletionTimestamp" not in meta


@pytest.fixture
def app(api: KubeClient, namespace: str) -> App:
    return App(api, namespace)


async def account(app: App, server: Server, *rules: Json) -> KubeClient:
    """A client of a service account that may do this."""
    await make_account(app.api, app.namespace, "evictor", *rules)
    kubeconfig = server.kubeconfig_for(namespace=app.namespace, service_account="evictor")
    return await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={})


async def test_an_eviction(app: App) -> None:
    await app.budget(1)
    answer = await app.evict(wanted := await app.pod())
    assert (answer.result, answer.again) == (Result.EVICTED, 0.0)
    with pytest.raises(NotFound):  # no kubelet has it, so it goes at once
        await app.api.get(PODS, wanted.name, namespace=app.namespace)
    assert await app.allowed() == 0


async def test_the_grace_period_is_the_pods_own(app: App) -> None:
    await app.api.create(NODES, {"metadata": {"name": (node := f"node-{app.namespace}")}})
    wanted = await app.pod(nodeName=node, terminationGracePeriodSeconds=77)
    assert (await app.evict(wanted)).result is Result.EVICTED
    assert (await app.api.get(PODS, wanted.name, namespace=app.namespace))["metadata"]["deletionGracePeriodSeconds"] == 77
    assert (await app.evict(wanted)).result is Result.EVICTED  # one that is being deleted already


async def test_a_pod_that_is_gone(app: App) -> None:
    answer = await app.evict(May(app.namespace, "none", "uid"))
    assert (answer.result, answer.is_over) == (Result.GONE, True)


async def test_another_pod_of_the_name_is_not_touched(app: App) -> None:
    there = await app.pod()
    answer = await app.evict(May(there.namespace, there.name, "7d0fa7f0-0000-4000-8000-000000000000"))
    assert (answer.result, answer.is_over) == (Result.REPLACED, True)
    assert await app.is_untouched(there)


async def test_of_a_pod_that_waits_for_a_node_no_budget_is_asked(app: App) -> None:
    await app.budget(0)
    answer = await app.evict(wanted := await app.waiting())
    assert answer.result is Result.EVICTED
    with pytest.raises(NotFound):
        await app.api.get(PODS, wanted.name, namespace=app.namespace)


async def test_a_spent_budget_and_its_cause(app: App) -> None:
    await app.budget(0)
    answer = await app.evict(wanted := await app.pod())
    assert (answer.result, answer.again) == (Result.BUDGET, BUDGET_PAUSE)
    assert answer.why.startswith("The disruption budget app needs 1 healthy pods and has 1 currently")
    assert await app.is_untouched(wanted)


async def test_a_budget_that_nobody_has_counted_yet(app: App) -> None:
    await app.budget(None)
    answer = await app.evict(wanted := await app.pod())
    assert (answer.result, answer.again) == (Result.BUDGET, BUDGET_PAUSE)
    assert "is still being processed by the server" in answer.why
    assert await app.is_untouched(wanted)


async def test_a_spent_budget_does_not_keep_a_pod_that_is_not_ready(app: App) -> None:
    """As long as enough others are healthy."""
    await app.budget(0)
    await app.pod()
    assert (await app.evict(await app.pod("sick", ready=False))).result is Result.EVICTED


async def test_where_too_few_are_healthy_one_that_is_not_ready_stays_unless_the_budget_always_allows_it(app: App) -> None:
    sick = await app.pod("sick", ready=False)
    await app.budget(0, healthy=0)
    assert (await app.evict(sick)).result is Result.BUDGET
    await app.api.delete(BUDGETS, "app", namespace=app.namespace)
    await app.budget(0, healthy=0, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await app.evict(sick)).result is Result.EVICTED


async def test_two_budgets(app: App) -> None:
    await app.budget(1)
    await app.budget(1, name="other")
    answer = await app.evict(wanted := await app.pod())
    assert (answer.result, answer.again) == (Result.TWO_BUDGETS, NEXT_PASS)
    assert await app.is_untouched(wanted)


async def test_a_namespace_that_ends(app: App) -> None:
    """Which the server may learn a moment later, by a watch of its own."""
    pods = [await app.pod(f"p{number}") for number in range(20)]
    await app.api.delete(NAMESPACES, app.namespace)
    for wanted in pods:
        answer = await app.evict(wanted)
        if answer.result is not Result.EVICTED:
            break
    assert (answer.result, answer.again) == (Result.NAMESPACE_ENDS, BUDGET_PAUSE)
    assert answer.why.startswith(f"namespace {app.namespace} is being terminated")
    assert await app.is_untouched(wanted)


async def test_a_role_that_does_not_allow_it(app: App, server: Server) -> None:
    wanted = await app.pod()
    async with await account(app, server) as client:
        answer = await app.evict(wanted, as_=client)
    assert (answer.result, answer.again) == (Result.FORBIDDEN, NEXT_PASS)
    assert 'cannot create resource "pods/eviction"' in answer.why
    assert await app.is_untouched(wanted)


async def test_a_server_that_is_busy(app: App, server: Server) -> None:
    """It refuses some of many at once: one is served even where there is no seat."""
    await app.budget(0)
    wanted = await app.pod()
    async with await account(app, server, EVICTS) as client:
        server.refuse_as_busy(namespace=app.namespace, service_account="evictor")
        busy: list[Answer] = []

        async def refused() -> bool:
            answers = await asyncio.gather(*(app.evict(wanted, as_=client) for _ in range(20)))
            busy.extend(answer for answer in answers if answer.result is Result.SERVER_BUSY)
            return bool(busy)

        await until(refused, "it has learnt whom to allow what, and whom to refuse, by watches of its own")
    assert {answer.again for answer in busy} <= {1.0, 2.0, 4.0, 8.0}, "the longer it refuses, the longer it asks to wait"
    assert await app.is_untouched(wanted)


async def test_a_request_that_cannot_be_sent(app: App) -> None:
    """As any other answer. What a broken server says cannot be provoked on a sound one."""
    answer = await app.evict(May(app.namespace, "..", "uid"))
    assert (answer.result, answer.again) == (Result.FAILED, NEXT_PASS)


def test_every_answer_of_the_table_was_provoked(server: Server) -> None:
    """By the tests above, on this server."""
    assert {Result.EVICTED, *(row.result for row in TABLE)} == PROVOKED
    PROVOKED.clear()
