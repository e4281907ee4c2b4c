"""What a tenant with thousands of objects, or with pods that come again and again, does to the emptying of a node that others use too."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.drain.reprovision import candidates, locks
from sidecar.drain.reprovision.lock import Name
from sidecar.drain.reprovision.record import MOST_CLAIMS
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.kube.api import CLAIMS, NAMESPACES, PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError
from sidecar.model import names
from tests.harness.drain import emptying, samples
from tests.harness.drain.emptying import Evictions, owner, run
from tests.harness.drain.replica import TAINTED, facts, view
from tests.harness.drain.reprovision import unready
from tests.harness.drain.simulated import EVACUATE, Bench, change, wait

TENANT: Final = "a-tenant"


async def a_set(bench: Bench, name: str, namespace: str, *, replicas: int = 2) -> dict[str, Any]:
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

    async def story(bench: Bench) -> None:
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
        assert len(requests) < 180
        await unready(bench, "z-1", False, namespace="well")
        await wait(bench, 100)
        assert seen.calls == ["z-0"]

    emptying.play(story, seen)


async def waits_for_claims_that_nobody_makes(bench: Bench) -> None:
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"none-{number}"}} for number in range(500)]
    spec = {"nodeName": "n0", "containers": [{"name": "main", "image": "none"}], "volumes": volumes}
    await bench.you.create(PODS, {"metadata": {"name": "a"}, "spec": spec, "status": {"phase": "Pending"}}, namespace=TENANT)


async def claims_say_that_they_are_bound_here(bench: Bench) -> None:
    for number in range(200):
        notes = {names.SELECTED_NODE: "n0", names.STORAGE_PROVISIONER: DRIVER}
        wish = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"metadata": {"name": f"c-{number}", "annotations": notes}, "spec": wish | {"volumeName": f"none-{number}"}}
        await bench.you.create(CLAIMS, body, namespace=TENANT)


def test_claims_by_the_hundred_cost_few_requests() -> None:
    """At five requests a second, a look that asked for each of them would not be over before the next one."""

    def case(trouble: Callable[[Bench], Awaitable[None]]) -> None:
        requests: list[Call] = []

        def count(call: Call) -> ApiError | None:
            requests.append(call) if call.verb != "watch" else None
            return None

        seen = Evictions(count)

        async def story(bench: Bench) -> None:
            await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
            await trouble(bench)
            await run(bench, "z-0", namespace="well")
            await wait(bench, 20)
            requests.clear()
            await change(bench, "n0", {"taints": [EVACUATE]})
            await wait(bench, 130)

        emptying.play(story, seen)
        assert seen.calls == ["z-0"]
        assert len(requests) < 100

    for trouble in [waits_for_claims_that_nobody_makes, claims_say_that_they_are_bound_here]:
        case(trouble)


TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}


def of_template(terms: list[dict[str, Any]], *, claims: int = 1) -> Workload:
    asked = [{"metadata": {"name": "data" if number == 0 else f"data-{number}"}, "spec": {}} for number in range(claims)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"affinity": affinity}}
    return Workload.of(
        {"metadata": {"name": "db", "uid": "uid-db"}, "spec": {"replicas": 3, "template": template, "volumeClaimTemplates": asked}}
    )


def test_a_template_that_asks_for_thousands_of_things_is_not_looked_at() -> None:
    """Each term costs a list of pods, or a comparison with each pod, at every look."""
    for terms in [
        [TERM | {"topologyKey": f"zone-{number}"} for number in range(21)],  # terms
        [TERM | {"namespaces": [f"of-{number}" for number in range(21)]}],  # namespaces
        [TERM | {"topologyKey": f"zone-{number}", "namespaceSelector": {}} for number in range(3)],  # all namespaces
        # requirements
        [TERM | {"labelSelector": {"matchExpressions": [{"key": f"k-{number}", "operator": "DoesNotExist"} for number in range(401)]}}],
        # values
        [TERM | {"labelSelector": {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": [str(n) for n in range(400)]}]}}],
    ]:
        workload = of_template(terms)
        assert workload.spread.apart == workload.spread.even == ()
        shut = [lock for lock in locks.look(view(facts(workload=workload))) if lock.name is Name.PLACE]
        assert [lock.refusal.hindrance for lock in shut if lock.refusal] == [Hindrance.NO_NODE_FITS]
        assert of_template([TERM]).spread.apart


def test_a_set_with_thousands_of_claim_templates_is_not_looked_at() -> None:
    """For each its class would be read at every look."""
    workload = of_template([TERM], claims=MOST_CLAIMS + 1)
    assert workload.wishes == ()
    shut = [lock for lock in locks.look(view(facts(workload=workload))) if lock.name is Name.MADE_AGAIN]
    assert [lock.refusal.hindrance for lock in shut if lock.refusal] == [Hindrance.TOO_MANY_CLAIMS]
    assert len(of_template([TERM], claims=MOST_CLAIMS).wishes) == MOST_CLAIMS


def test_a_pod_that_names_thousands_of_claims_is_not_looked_at() -> None:
    """Each of its claims would be read anew at every look, also those that are not here."""
    others = [f"other-{number}" for number in range(MOST_CLAIMS)]
    snapshot = samples.snapshot(
        node=TAINTED,
        volumes=(samples.volume("pv-0", "data"),),
        claims=(samples.claim("data", policy="Reprovision", volume_name="pv-0"),),
        pods=(),
        claimants=(samples.pod("db-0", "data", *others, node=""),),
    )
    found, refused = candidates.find(snapshot)
    assert (found, [each.hindrance for each in refused]) == ([], [Hindrance.TOO_MANY_CLAIMS])
