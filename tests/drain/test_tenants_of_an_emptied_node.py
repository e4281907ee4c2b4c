"""What a tenant with thousands of objects, or with pods that come again and again, does to the emptying of a node that others use too."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.drain.emptying import decisions, rules
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.reprovision import candidates, locks
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Name
from sidecar.drain.reprovision.record import MOST_CLAIMS, Target
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.drain.wording import all_or_few
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError
from sidecar.model import names
from tests.drain.reprovision.scenes import TAINTED, facts, view
from tests.harness.drain import emptying, reprovision, samples, simulated
from tests.harness.drain.emptying import Evictions, owner, run
from tests.harness.drain.reprovision import ANEW, NODES_THERE, Seen, evacuate, places, unready
from tests.harness.drain.simulated import EVACUATE, change, wait

TENANT: Final = "a-tenant"


async def a_set(bench: NotebookWorld, name: str, namespace: str, *, replicas: int = 2) -> dict[str, Any]:
    """As the owner of pods."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template}
    made = await bench.you.create(STATEFUL_SETS, {"metadata": {"name": name}, "spec": spec}, namespace=namespace)
    return owner(name, made["metadata"]["uid"])


def test_many_sets_that_lack_a_pod_keep_no_other_one_here_and_are_asked_about_now_and_then() -> None:
    """More than one look asks about; the other tenant's set is ready only when all have been asked about."""
    requests: list[Call] = []

    def count(call: Call) -> ApiError | None:
        requests.append(call) if call.verb != "watch" else None
        return None

    seen = Evictions(count)

    async def story(bench: NotebookWorld) -> None:
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


def test_a_tenant_who_puts_new_pods_here_all_the_time_under_new_owners_keeps_no_other_one_here() -> None:
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        for number in range(3):
            await run(bench, f"z-{number}", namespace="well")

        async def again() -> None:
            number = 0
            while True:
                found = (await bench.you.list_page(PODS, namespace=TENANT)).items
                for _ in range(3 - len([pod for pod in found if "deletionTimestamp" not in pod["metadata"]])):
                    await run(bench, f"a-{number}", namespace=TENANT, of=owner(f"a-{number}", kind="ConfigMap"))
                    number += 1
                await asyncio.sleep(0.2)

        bench.spawn(again())
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)

    emptying.play(story, seen)
    assert {"z-0", "z-1", "z-2"} <= set(seen.calls[:7]), "three were there before"


def test_many_pods_that_wait_with_one_claim_keep_no_other_replica_here() -> None:
    """Each of them is one that may be made anew, and three of all are looked at in 20 seconds."""
    seen = Seen()

    async def story(bench: NotebookWorld) -> None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
        db, aa = reprovision.Workload(bench), reprovision.Workload(bench, name="aa", namespace=TENANT)
        await db.begin()
        await aa.begin()
        await wait(bench, 70)
        aa.stop()
        await bench.you.delete(PODS, "aa-0", namespace=TENANT)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-aa-0"}}]
        spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeSelector": emptying.NOWHERE}
        for number in range(60):
            meta = {"name": f"aa-{number + 10}", "ownerReferences": [owner("aa", aa.uid)]}
            await bench.you.create(PODS, {"metadata": meta, "spec": spec}, namespace=TENANT)
        await unready(bench, "db-2")
        await evacuate(bench, True, "aa")
        await wait(bench, 60)
        await unready(bench, "db-2", False)
        await wait(bench, 60)
        assert (await places(bench))["db-0"] == "n3"

    simulated.play(story, args=ANEW, refuse=seen, nodes=NODES_THERE)


def test_a_replica_that_is_late_and_takes_long_to_read_keeps_no_other_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tenant makes thousands of pods once the sidecar has begun with it."""
    read, full = Reading.facts, list[bool]()

    async def slow(self: Reading, target: Target, *, users: frozenset[str], **options: Any) -> Facts:
        await asyncio.sleep(60.0 if full and target.namespace == TENANT else 0.0)
        return await read(self, target, users=users, **options)

    monkeypatch.setattr(Reading, "facts", slow)
    seen = Seen()

    async def story(bench: NotebookWorld) -> None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
        for each in (reprovision.Workload(bench), reprovision.Workload(bench, name="aa", namespace=TENANT)):
            await each.begin()
        await wait(bench, 70)
        seen.at("evict aa-0", lambda: full.append(True), after=True)
        await evacuate(bench, True, "aa")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(400):
                while (await places(bench)).get("db-0", "n0") == "n0":
                    await wait(bench, 5)
        assert (await places(bench))["db-0"] == "n3"
        assert "delete data-aa-0" not in seen.did

    simulated.play(story, args=(*ANEW, "--reprovision-ready-timeout=120s"), refuse=seen, nodes=NODES_THERE)


async def waits_for_claims_that_nobody_makes(bench: NotebookWorld) -> None:
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"none-{number}"}} for number in range(500)]
    spec = {"nodeName": "n0", "containers": [{"name": "main", "image": "none"}], "volumes": volumes}
    await bench.you.create(PODS, {"metadata": {"name": "a"}, "spec": spec, "status": {"phase": "Pending"}}, namespace=TENANT)


async def claims_say_that_they_are_bound_here(bench: NotebookWorld) -> None:
    for number in range(200):
        notes = {names.SELECTED_NODE: "n0", names.STORAGE_PROVISIONER: DRIVER}
        wish = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"metadata": {"name": f"c-{number}", "annotations": notes}, "spec": wish | {"volumeName": f"none-{number}"}}
        await bench.you.create(CLAIMS, body, namespace=TENANT)


@pytest.mark.parametrize("trouble", [waits_for_claims_that_nobody_makes, claims_say_that_they_are_bound_here])
def test_claims_by_the_hundred_cost_few_requests(trouble: Callable[[NotebookWorld], Awaitable[None]]) -> None:
    """At five requests a second, a look that asked for each of them would not be over before the next one."""
    requests: list[Call] = []

    def count(call: Call) -> ApiError | None:
        requests.append(call) if call.verb != "watch" else None
        return None

    seen = Evictions(count)

    async def story(bench: NotebookWorld) -> None:
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


def test_pods_that_leave_one_after_the_other_without_end_keep_no_other_replica_here() -> None:
    """Each for less than the five minutes that others wait for it, and the next one before it is gone."""
    seen = Seen()

    async def story(bench: NotebookWorld) -> None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
        await reprovision.Workload(bench).begin()
        await wait(bench, 70)

        async def leave(number: int) -> None:
            await run(bench, f"a-{number}", namespace=TENANT, of=owner(f"a-{number}", kind="ConfigMap"), stays=True)
            await wait(bench, 5)
            await bench.you.delete(PODS, f"a-{number}", namespace=TENANT)
            await wait(bench, 200)
            await bench.you.patch(PODS, f"a-{number}", {"metadata": {"finalizers": None}}, namespace=TENANT, content_type=MERGE_PATCH)

        async def again() -> None:
            for number in range(20):
                bench.spawn(leave(number))
                await wait(bench, 150)

        bench.spawn(again())
        await wait(bench, 10)
        await evacuate(bench)
        await wait(bench, 200)
        assert (await places(bench))["db-0"] == "n0"
        await wait(bench, 250)
        assert (await places(bench))["db-0"] == "n3"

    simulated.play(story, args=ANEW, refuse=seen, nodes=NODES_THERE)


def test_thousands_of_pods_that_name_the_same_claims_take_no_long_time() -> None:
    """Nothing else is done by this process meanwhile."""
    claims = tuple(samples.claim(f"c-{number}", policy="Reprovision", volume_name=f"pv-{number}") for number in range(MOST_CLAIMS))
    volumes = tuple(samples.volume(f"pv-{number}", f"c-{number}") for number in range(MOST_CLAIMS))
    pods = tuple(samples.pod(f"p-{number}", *(claim.name for claim in claims), node="") for number in range(2000))
    snapshot = samples.snapshot(node=TAINTED, volumes=volumes, claims=claims, pods=(), claimants=pods)
    begun = time.process_time()
    assert len(candidates.find(snapshot)[0]) == len(pods)
    assert time.process_time() - begun < 2.0


TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}


def of_template(terms: list[dict[str, Any]], *, claims: int = 1) -> Workload:
    asked = [{"metadata": {"name": "data" if number == 0 else f"data-{number}"}, "spec": {}} for number in range(claims)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"affinity": affinity}}
    return Workload.of(
        {"metadata": {"name": "db", "uid": "uid-db"}, "spec": {"replicas": 3, "template": template, "volumeClaimTemplates": asked}}
    )


@pytest.mark.parametrize(
    "terms",
    [
        [TERM | {"topologyKey": f"zone-{number}"} for number in range(21)],
        [TERM | {"namespaces": [f"of-{number}" for number in range(21)]}],
        [TERM | {"topologyKey": f"zone-{number}", "namespaceSelector": {}} for number in range(3)],
        [TERM | {"labelSelector": {"matchExpressions": [{"key": f"k-{number}", "operator": "DoesNotExist"} for number in range(401)]}}],
        [TERM | {"labelSelector": {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": [str(n) for n in range(400)]}]}}],
    ],
    ids=["terms", "namespaces", "all namespaces", "requirements", "values"],
)
def test_a_template_that_asks_for_thousands_of_things_is_not_looked_at(terms: list[dict[str, Any]]) -> None:
    """Each term costs a list of pods, or a comparison with each pod, at every look."""
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


def test_a_look_holds_budgets_and_volumes_against_pods_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it asks and decides again: with thousands of budgets each time takes seconds."""
    looks: list[Snapshot] = []
    look_at = rules.look_at

    def counted(snapshot: Snapshot) -> decisions.Looked:
        looks.append(snapshot)
        return look_at(snapshot)

    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
        for number in range(8):
            await run(bench, f"s-{number}-0", namespace=TENANT, of=await a_set(bench, f"s-{number}", TENANT))
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 2)
        monkeypatch.setattr(rules, "look_at", counted)
        await wait(bench, 60)

    emptying.play(story, seen)
    assert seen.calls == []
    # The evacuation asks too whether somebody is left.
    assert 0 < max(Counter(map(id, looks)).values()) <= 3


@pytest.mark.parametrize("number", [2, 5000])
def test_a_pod_that_thousands_of_budgets_select_is_told_in_few_words(number: int) -> None:
    budgets = tuple(f"apps/budget-{each}" for each in range(number))
    assert len(all_or_few(budgets)) < 200


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
