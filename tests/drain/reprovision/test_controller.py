"""Making a replica anew, as a process does it: led step by step against a simulated API server."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from sidecar.drain.reprovision.facts_io import Reading
from sidecar.kube.api import BUDGETS, CLAIMS, CLASSES, EVENTS, LEASES, MERGE_PATCH, NODES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.nodes import SnapshotContent
from sidecar.simulation.cluster import Call
from sidecar.simulation.notebook.notebook_world import NotebookWorld
from sidecar.simulation.world.node import DRIVER
from tests.harness.drain import simulated
from tests.harness.drain.simulated import EVACUATE, STATE, all_of, change, node_of, wait

ARGS: Final = ("--drain-report", "--node-drain-policy=NoSchedule", "--max-concurrent-evacuations=0", "--evacuation-evict")
ANEW: Final = (*ARGS, "--allow-reprovision")
NODES_THERE: Final = ("n0", "n1", "n2", "n3")
REVISION: Final = "db-1"


class Seen:
    """What sidecars wrote for a replica, in order; and what `refuse` answers."""

    def __init__(self, refuse: Callable[[Call], ApiError | None] = lambda _: None) -> None:
        self.did: list[str] = []
        self.requests = 0
        self._refuse = refuse
        self._once: list[tuple[str, bool, Callable[[], object]]] = []

    def at(self, step: str, happens: Callable[[], object], *, after: bool = False) -> None:
        """Once, when that step is about to be taken; `after`: at the first request that follows it."""
        self._once.append((step, after, happens))

    def __call__(self, call: Call) -> ApiError | None:
        what, last = said(call), self.did[-1] if self.did else ""
        for each in list(self._once):
            step, after, happens = each
            if (step == last) if after else (step == what):
                self._once.remove(each)
                happens()
                if not after:
                    return Unavailable("it never came there")
        if error := self._refuse(call):
            return error
        self.requests += call.verb != "watch"
        if what:
            self.did.append(what)
        return None


def said(call: Call) -> str:
    if call.resource == PODS and call.subresource == "eviction":
        return f"evict {call.name}"
    if call.resource == CLAIMS and call.verb == "delete" and not call.dry_run:
        return f"delete {call.name}"
    if call.resource == CLAIMS and call.verb == "patch":
        return f"note {call.name}"
    if call.resource == LEASES and call.verb in ("create", "replace", "update", "delete"):
        return f"{call.verb} lease"
    assert call.resource != PODS or call.verb != "delete", "a pod is evicted and not deleted"
    return ""


class Workload:
    """A StatefulSet of so many replicas, played by hand: db-0 on n0 and so on. What is missing is made again."""

    def __init__(
        self,
        bench: NotebookWorld,
        replicas: int = 3,
        *,
        templates: tuple[str, ...] = ("data",),
        name: str = "db",
        namespace: str = "default",
        **spec: Any,
    ) -> None:
        self._bench, self._replicas, self._templates, self._name, self._spec = bench, replicas, templates, name, spec
        self._namespace = namespace
        self.uid = ""
        self._stopped = False

    def stop(self) -> None:
        """Nothing is made again any more."""
        self._stopped = True

    async def begin(self) -> None:
        template = {"metadata": {"labels": {"app": self._name}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        claims = [{"metadata": {"name": name}, "spec": _wish()} for name in self._templates]
        spec = {
            "replicas": self._replicas,
            "serviceName": self._name,
            "selector": {"matchLabels": {"app": self._name}},
            "template": template,
        }
        body = {"metadata": {"name": self._name}, "spec": spec | {"volumeClaimTemplates": claims} | self._spec}
        made = await self._bench.you.create(STATEFUL_SETS, body, namespace=self._namespace)
        self.uid = made["metadata"]["uid"]
        status = {"observedGeneration": made["metadata"].get("generation", 1), "replicas": self._replicas, "updateRevision": REVISION}
        await self._bench.you.patch(
            STATEFUL_SETS, self._name, {"status": status}, namespace=self._namespace, subresource="status", content_type=MERGE_PATCH
        )
        for number, node in enumerate(NODES_THERE):
            await change(self._bench, node, {"taints": None}, labels={f"for-{self._name}-{number}": "yes"})
        await self._sync()
        await wait(self._bench, 10)
        for node in NODES_THERE[self._replicas :]:
            await change(self._bench, node, labels={f"for-{self._name}-{number}": "yes" for number in range(self._replicas)})
        self._bench.spawn(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            with contextlib.suppress(NotFound, AlreadyExists, Conflict):
                await (asyncio.sleep(0) if self._stopped else self._sync())

    async def _sync(self) -> None:
        for number in range(self._replicas):
            name = f"{self._name}-{number}"
            for template in self._templates:
                meta = {"name": f"{template}-{name}", "annotations": {names.DRAIN_POLICY_RETIRE: "Reprovision"}}
                with contextlib.suppress(AlreadyExists):
                    await self._bench.you.create(CLAIMS, {"metadata": meta, "spec": _wish()}, namespace=self._namespace)
            with contextlib.suppress(AlreadyExists):
                await self._make(name)

    async def _make(self, name: str) -> None:
        of = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": self._name, "uid": self.uid, "controller": True}
        meta = {"name": name, "labels": {"app": self._name, names.POD_REVISION: REVISION}, "ownerReferences": [of]}
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in self._templates]
        # The stand-in for the scheduler knows no taints, so here a label of nodes says where a pod may be.
        where = {f"for-{name}": "yes"}
        spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeSelector": where}
        await self._bench.you.create(PODS, {"metadata": meta, "spec": spec}, namespace=self._namespace)


def _wish() -> dict[str, Any]:
    return {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


Story = Callable[[NotebookWorld, Workload], Awaitable[None]]


def play(
    story: Story,
    seen: Seen,
    *,
    args: tuple[str, ...] = ANEW,
    replicas: int = 3,
    templates: tuple[str, ...] = ("data",),
    delay: Callable[[Call], Awaitable[None]] = simulated.no_time,
) -> None:
    async def whole(bench: NotebookWorld) -> None:
        workload = Workload(bench, replicas, templates=templates)
        await workload.begin()
        await wait(bench, 70)
        assert set((await places(bench)).values()) == {f"n{number}" for number in range(replicas)}
        await story(bench, workload)

    simulated.play(whole, args=args, refuse=seen, nodes=NODES_THERE, delay=delay)


async def places(bench: NotebookWorld) -> dict[str, str]:
    """By pod that is Ready: its node."""
    found = {}
    for pod in await all_of(bench, PODS):
        if any(item["type"] == "Ready" and item["status"] == "True" for item in (pod.get("status") or {}).get("conditions") or ()):
            found[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
    return found


async def uids(bench: NotebookWorld) -> dict[str, str]:
    return {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in await all_of(bench, CLAIMS)}


async def at_rest(bench: NotebookWorld) -> bool:
    """No Lease of a workload and no mark is left."""
    leases = [lease for lease in await all_of(bench, LEASES) if names.REPROVISION_FOR in (lease["metadata"].get("labels") or {})]
    marked = [claim for claim in await all_of(bench, CLAIMS) if names.REPROVISIONED_BY in (claim["metadata"].get("annotations") or {})]
    return not leases and not marked


async def told(bench: NotebookWorld, reason: str) -> list[str]:
    return sorted(event["involvedObject"]["name"] for event in await all_of(bench, EVENTS) if event["reason"] == reason)


async def evacuate(bench: NotebookWorld, on: bool = True, *others: str) -> None:
    """`others` are workloads besides db, each of which has its first replica here too."""
    labels = {f"for-{name}-0": None if on else "yes" for name in ("db", *others)}
    await change(bench, "n0", {"taints": [EVACUATE] if on else None}, labels=labels)


def metric(bench: NotebookWorld) -> str:
    tools = bench.nodes["n0"].tools
    assert tools is not None
    return tools.metrics.render()[0].decode()


def test_drain_F1_a_replica_is_made_anew_elsewhere_and_its_volume_here_goes() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        before = await uids(bench)
        await evacuate(bench)
        await wait(bench, 180)
        assert seen.did == [
            "create lease", "note data-db-0", "update lease", "evict db-0", "update lease", "delete data-db-0", "delete lease"
        ]  # fmt: skip
        assert (await places(bench))["db-0"] == "n3"
        after = await uids(bench)
        assert {name for name in before if before[name] != after[name]} == {"data-db-0"}
        assert await at_rest(bench)
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "Success"
        assert len(await all_of(bench, VOLUMES)) == 3
        assert await told(bench, names.CLAIM_REPROVISIONED) == ["data-db-0"]
        assert await told(bench, names.REPLICA_READY) == await told(bench, names.POD_EVICTED) == ["db-0"]
        page = metric(bench)
        assert 'csi_node_sidecar_reprovisions_total{result="ready"} 1' in page
        assert "csi_node_sidecar_reprovision_seconds_count 1" in page

    play(story, seen)


STEPS: Final = ("create lease", "note data-db-0", "evict db-0", "delete data-db-0", "delete lease")


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("step", STEPS)
def test_after_a_crash_at_a_step_it_goes_on_rightly(step: str, after: bool) -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        seen.at(step, bench.nodes["n0"].kill, after=after)
        await evacuate(bench)
        await wait(bench, 300)
        assert (await places(bench)) == {"db-0": "n3", "db-1": "n1", "db-2": "n2"}
        assert await at_rest(bench)
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "Success"
        assert [seen.did.count(what) for what in ("evict db-0", "delete data-db-0")] == [1, 1]

    play(story, seen)


TWO: Final = ("data", "log")


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("step", ["delete data-db-0", "delete log-db-0"])
def test_after_a_crash_between_the_deletions_of_two_claims_the_second_one_goes_too(step: str, after: bool) -> None:
    """Its StatefulSet may have made the first one again by then. Without it the replica could be nowhere."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        before = await uids(bench)
        seen.at(step, bench.nodes["n0"].kill, after=after)
        await evacuate(bench)
        await wait(bench, 300)
        assert (await places(bench)) == {"db-0": "n3", "db-1": "n1", "db-2": "n2"}
        now = await uids(bench)
        assert {name for name in before if before[name] != now[name]} == {"data-db-0", "log-db-0"}
        assert await at_rest(bench)
        assert [seen.did.count(what) for what in ("evict db-0", "delete data-db-0", "delete log-db-0")] == [1, 1, 1]

    play(story, seen, templates=TWO)


@pytest.mark.parametrize("step", STEPS[1:4])
def test_undone_just_before_a_step_it_is_not_taken(step: str) -> None:
    """The node is asked for anew before what cannot be taken back, whatever a watch has shown."""
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        before = await uids(bench)

        def undo() -> None:
            bench.cluster.patch(
                NODES, "n0", {"spec": {"taints": None}, "metadata": {"labels": {"for-db-0": "yes"}}}, content_type=MERGE_PATCH
            )

        last = {"note data-db-0": "create lease", "evict db-0": "note data-db-0", "delete data-db-0": "evict db-0"}[step]
        seen.at(last, undo, after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert "delete data-db-0" not in seen.did
        assert ("evict db-0" in seen.did) is (step == "delete data-db-0")
        assert await uids(bench) == before
        assert (await places(bench))["db-0"] == "n0"
        assert await at_rest(bench)

    play(story, seen)


def test_undone_after_the_deletion_the_replica_is_waited_for_and_no_other_one_is_begun() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        seen.at("delete data-db-0", lambda: bench.spawn(evacuate(bench, False)), after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert seen.did.count("delete data-db-0") == 1
        assert "db-0" in await places(bench)
        assert await at_rest(bench)
        assert await told(bench, names.CLAIM_REPROVISIONED) == ["data-db-0"]
        assert await told(bench, names.REPLICA_READY) == ["db-0"]

    play(story, seen)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(ARGS, id="not allowed"),
        pytest.param((*ANEW, "--node-drain-policy=Ignore"), id="the node is not drained by us"),
    ],
)
def test_nothing_is_made_anew_otherwise(args: tuple[str, ...]) -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench)
        await wait(bench, 120)

    play(story, seen, args=args)
    assert seen.did == []


def test_for_a_reboot_nothing_is_made_anew() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await change(bench, "n0", {"taints": [EVACUATE | {"value": "reboot"}], "unschedulable": True})
        await wait(bench, 120)

    play(story, seen)
    assert seen.did == []


async def unready(bench: NotebookWorld, pod: str, on: bool = True, *, namespace: str = "default") -> None:
    found = await bench.you.get(PODS, pod, namespace=namespace)
    others = [item for item in found["status"]["conditions"] if item["type"] != "Ready"]
    status = {"conditions": [*others, {"type": "Ready", "status": "False" if on else "True"}]}
    await bench.you.patch(PODS, pod, {"status": status}, namespace=namespace, subresource="status", content_type=MERGE_PATCH)


def test_drain_F2_with_a_replica_that_is_not_ready_nothing_happens_and_then_it_does() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await unready(bench, "db-2")
        await evacuate(bench)
        await wait(bench, 120)
        assert seen.did == []
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "InProgress"
        await unready(bench, "db-2", False)
        await wait(bench, 120)
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen)


def test_a_replica_that_falls_after_the_eviction_keeps_the_data() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        before = await uids(bench)
        seen.at("evict db-0", lambda: bench.spawn(unready(bench, "db-2")), after=True)
        await evacuate(bench)
        await wait(bench, 120)
        assert "evict db-0" in seen.did
        assert "delete data-db-0" not in seen.did
        assert await uids(bench) == before
        assert not await at_rest(bench), "a replica is away by our doing"
        await evacuate(bench, False)
        await wait(bench, 60)
        assert (await places(bench))["db-0"] == "n0"
        assert await at_rest(bench)

    play(story, seen)


def test_drain_B7_a_budget_of_none_and_then_of_one() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        budget = {"metadata": {"name": "db"}, "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "db"}}}}
        await bench.you.create(BUDGETS, budget, namespace="default")
        await count(bench, 0)
        await evacuate(bench)
        await wait(bench, 120)
        assert seen.did == []
        await count(bench, 1)
        await wait(bench, 120)
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen)


async def count(bench: NotebookWorld, allowed: int) -> None:
    status = {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3, "observedGeneration": 1}
    await bench.you.patch(BUDGETS, "db", {"status": status}, namespace="default", subresource="status", content_type=MERGE_PATCH)


def test_a_replacement_that_is_late_is_told_and_waited_for() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        away = {"metadata": {"labels": {"for-db-0": None}}}
        seen.at("delete data-db-0", lambda: bench.cluster.patch(NODES, "n3", away, content_type=MERGE_PATCH), after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert len(await all_of(bench, VOLUMES)) == 2
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "InProgress", "its replica is on its way"
        await wait(bench, 200)
        assert "csi_node_sidecar_replacements_not_ready 1" in metric(bench)
        assert 'reprovisions_total{result="replacement_not_ready"} 1' in metric(bench)
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "Success", "nothing of it is here any more"
        await change(bench, "n3", labels={"for-db-0": "yes"})
        await wait(bench, 120)
        assert await at_rest(bench)
        assert "csi_node_sidecar_replacements_not_ready 0" in metric(bench)
        assert await told(bench, names.REPLICA_READY) == ["db-0"]

    play(story, seen, args=(*ANEW, "--reprovision-ready-timeout=5m"))


@pytest.mark.parametrize("step", ["note data-db-0", "evict db-0", "delete data-db-0", "update lease", "create lease"])
@pytest.mark.parametrize("error", [Forbidden("no such right", status=403), Unavailable("no answer")], ids=["no right", "no answer"])
def test_what_is_refused_midway_is_tried_again_at_a_measured_pace(step: str, error: ApiError) -> None:
    tried: list[str] = []

    def refuse(call: Call) -> ApiError | None:
        if said(call) != step or granted:
            return None
        tried.append(step)
        return error

    granted: list[bool] = []
    seen = Seen(refuse)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench)
        await wait(bench, 200)
        assert 1 <= len(tried) <= 15
        assert "delete data-db-0" not in seen.did
        granted.append(True)
        await wait(bench, 200)
        assert (await places(bench))["db-0"] == "n3"
        assert await at_rest(bench)

    play(story, seen)


def test_garbage_in_the_lease_stops_that_workload_and_an_undo_clears_it() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        name = names.reprovision(workload.uid, DRIVER)

        def spoil() -> None:
            change = {"metadata": {"annotations": {names.REPROVISION_RECORD: "{"}}}
            bench.cluster.patch(LEASES, name, change, namespace="default", content_type=MERGE_PATCH)

        seen.at("create lease", spoil, after=True)
        await evacuate(bench)
        await wait(bench, 120)
        assert "evict db-0" not in seen.did
        await evacuate(bench, False)
        await wait(bench, 120)
        assert await at_rest(bench)

    play(story, seen)


def test_a_lease_that_somebody_deletes_midway_leaves_no_mark_behind() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        name = names.reprovision(workload.uid, DRIVER)

        def lose() -> None:
            bench.cluster.delete(LEASES, name, namespace="default")
            bench.cluster.patch(
                NODES, "n0", {"spec": {"taints": None}, "metadata": {"labels": {"for-db-0": "yes"}}}, content_type=MERGE_PATCH
            )

        seen.at("note data-db-0", lose, after=True)
        await evacuate(bench)
        await wait(bench, 120)
        assert "delete data-db-0" not in seen.did
        assert await at_rest(bench)
        assert (await places(bench))["db-0"] == "n0"

    play(story, seen)


def test_a_claim_made_again_under_its_name_is_not_deleted() -> None:
    """Somebody deletes the claim while the pod leaves, and its StatefulSet makes another."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        seen.at("evict db-0", lambda: bench.spawn(bench.you.delete(CLAIMS, "data-db-0", namespace="default")), after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert "delete data-db-0" not in seen.did
        assert await at_rest(bench)

    play(story, seen)


def test_two_nodes_never_send_two_replicas_away_at_once() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await change(bench, "n1", labels={"for-db-1": None})
        await change(bench, "n1", {"taints": [EVACUATE]})
        await evacuate(bench)
        fewest = 3
        for _ in range(400):
            await wait(bench, 1)
            fewest = min(fewest, len(await places(bench)))
        assert fewest == 2
        assert await at_rest(bench)
        assert set(seen.did) >= {"delete data-db-0", "delete data-db-1"}

    play(story, seen)


def test_a_class_that_is_gone_is_no_reason_to_delete() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await bench.you.delete(CLASSES, "late")
        await evacuate(bench)
        await wait(bench, 120)
        assert "delete data-db-0" not in seen.did

    play(story, seen)


@pytest.mark.parametrize("step", ["evict db-0", "delete data-db-0"])
def test_undone_after_the_last_look_at_the_locks_it_is_not_taken_either(step: str) -> None:
    """No watch can have shown it: it happens between the record of the step and the step."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        def undo() -> None:
            bench.cluster.patch(
                NODES, "n0", {"spec": {"taints": None}, "metadata": {"labels": {"for-db-0": "yes"}}}, content_type=MERGE_PATCH
            )

        last = {"evict db-0": "note data-db-0", "delete data-db-0": "evict db-0"}[step]
        seen.at(last, lambda: seen.at("update lease", undo, after=True), after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert step not in seen.did
        assert (await places(bench))["db-0"] == "n0"
        assert await at_rest(bench)

    play(story, seen)


def test_while_a_replica_is_on_its_way_nobody_else_is_evicted() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await simulated.with_pod(bench, "app-0")
        notes = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}
        await bench.you.patch(CLAIMS, "app-0", notes, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 20)
        await evacuate(bench)
        await wait(bench, 200)
        assert seen.did.index("evict app-0") > seen.did.index("delete lease")
        assert "delete data-db-0" in seen.did

    play(story, seen)


def test_while_another_pod_leaves_no_replica_is_begun() -> None:
    """Whoever asked it to leave."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await simulated.with_pod(bench, "app-0")
        await wait(bench, 20)
        keep = {"metadata": {"finalizers": ["example.com/keep"]}}
        await bench.you.patch(PODS, "app-0", keep, namespace="default", content_type=MERGE_PATCH)
        await bench.you.delete(PODS, "app-0", namespace="default")
        await evacuate(bench)
        await wait(bench, 100)
        assert seen.did == []
        await bench.you.patch(PODS, "app-0", {"metadata": {"finalizers": None}}, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 100)
        assert "delete data-db-0" in seen.did

    play(story, seen)


@pytest.mark.parametrize("duration", [1, 900, 2**31 - 1], ids=["a second", "as written", "decades"])
def test_another_nodes_lease_is_taken_only_when_it_has_long_run_out(duration: int) -> None:
    """By this node's own clock: what stands in it was dated by another one, which may be wrong by minutes (drain G8), or lie."""
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        meta = {"name": names.reprovision(workload.uid, DRIVER), "labels": {names.REPROVISION_FOR: DRIVER}}
        spec = {"holderIdentity": f"uid-other/{DRIVER}", "leaseDurationSeconds": duration, "renewTime": "2020-01-01T00:00:00.000000Z"}
        await bench.you.create(LEASES, {"metadata": meta, "spec": spec}, namespace="default")
        await evacuate(bench)
        await wait(bench, 800)
        assert seen.did == []
        await wait(bench, 300)
        assert (await places(bench))["db-0"] == "n3"
        assert await at_rest(bench)

    play(story, seen)


def test_a_snapshot_that_no_watch_has_shown_yet_keeps_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made between the last look at the locks and the deletion."""
    there: list[str] = []

    async def listed(_: Reading, handles: frozenset[str]) -> tuple[SnapshotContent, ...]:
        (handle,) = handles
        return tuple(SnapshotContent(name, f"uid-{name}", DRIVER, handle, "", 1) for name in there)

    monkeypatch.setattr(Reading, "snapshots", listed)
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        seen.at("evict db-0", lambda: seen.at("update lease", lambda: there.append("snap"), after=True), after=True)
        await evacuate(bench)
        await wait(bench, 60)
        assert there and "delete data-db-0" not in seen.did
        there.clear()
        await wait(bench, 60)
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen)
