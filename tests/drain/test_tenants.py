"""What a tenant with thousands of objects does to the emptying of a node that others use too."""

from typing import Any, Final

from hack.sim.cluster import Call
from sidecar.drain.reprovision import candidates, locks
from sidecar.drain.reprovision.lock import Name
from sidecar.drain.reprovision.record import MOST_CLAIMS
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.kube.api import NAMESPACES, STATEFUL_SETS
from sidecar.kube.errors import ApiError
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


def with_templates(claims: int) -> Workload:
    asked = [{"metadata": {"name": "data" if number == 0 else f"data-{number}"}, "spec": {}} for number in range(claims)]
    return Workload.of({"metadata": {"name": "db", "uid": "uid-db"}, "spec": {"replicas": 3, "volumeClaimTemplates": asked}})


def test_a_set_with_thousands_of_claim_templates_is_not_looked_at() -> None:
    """For each its class would be read at every look."""
    workload = with_templates(MOST_CLAIMS + 1)
    assert workload.wishes == ()
    shut = [lock for lock in locks.look(view(facts(workload=workload))) if lock.name is Name.MADE_AGAIN]
    assert [lock.refusal.hindrance for lock in shut if lock.refusal] == [Hindrance.TOO_MANY_CLAIMS]
    assert len(with_templates(MOST_CLAIMS).wishes) == MOST_CLAIMS


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
