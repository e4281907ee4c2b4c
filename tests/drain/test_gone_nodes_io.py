"""Nodes that are gone, as a process looks for them: led step by step against a simulated API server."""

from collections.abc import Callable

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import (
    CLAIMS,
    CSI_NODES,
    DRAIN_REPORTS,
    EVENTS,
    LEASES,
    MERGE_PATCH,
    NODES,
    PODS,
    STATEFUL_SETS,
    VOLUMES,
    Resource,
)
from sidecar.kube.errors import ApiError, Forbidden, Gone, NotFound, Unavailable
from sidecar.model import names
from sidecar.observe.exposition import page
from tests.harness.drain.simulated import Json, Story, all_of, change, node_of, wait
from tests.harness.gone_nodes import (
    CLEANING,
    Watchman,
    announce,
    app,
    gone,
    holder,
    note,
    one_replica,
    play,
    replicas,
    report,
    say,
    settled,
    there,
    told,
    uid_of,
    vanish,
)

# --- what is told ---------------------------------------------------------------------------------------------------------


def test_A13_a_loss_is_told_within_90_seconds_and_under_orphan_nothing_is_touched() -> None:
    seen = Watchman()

    async def story(bench: Story) -> None:
        await one_replica(bench)
        uid = await uid_of(bench)
        await announce(bench)
        claims, volumes = await there(bench, CLAIMS), await there(bench, VOLUMES)
        await vanish(bench)
        await wait(bench, 90)
        stored = await report(bench)
        assert stored is not None
        assert "ownerReferences" not in stored["metadata"]
        assert stored["status"]["nodeUID"] == uid
        assert "verdicts" not in stored["status"], "nobody stands for them"
        found = stored["status"]["gone"]
        assert found["evidence"] == "Announced"
        assert [item["name"] for item in found["volumes"]] == volumes
        assert [item["name"] for item in found["claims"]] == claims
        assert await told(bench) == claims
        await wait(bench, 4000)
        assert await told(bench) == claims, "told once"
        assert (await there(bench, CLAIMS), await there(bench, VOLUMES)) == (claims, volumes)
        assert (await bench.you.get(CLAIMS, claims[0], namespace="default"))["metadata"]["annotations"].get(names.LOST_WITH) is None

    play(story, seen)
    assert seen.of("delete", VOLUMES) == seen.of("delete", CLAIMS) == []


def test_the_loss_of_the_node_that_has_the_lease_is_told_within_a_quarter_of_an_hour() -> None:
    async def story(bench: Story) -> None:
        await wait(bench, 100)
        first = await holder(bench)
        await app(bench, node=first)
        await wait(bench, 500)
        assert await holder(bench) == first
        await vanish(bench, first, collected=True)
        await wait(bench, 900)
        stored = await bench.you.get(DRAIN_REPORTS, names.drain_report(first, DRIVER))
        assert stored["status"]["gone"]["evidence"] == "None"
        assert await holder(bench) not in ("", first)

    play(story)


def test_a_machine_that_is_there_again_with_its_disks_ends_the_report() -> None:
    """G1: under another uid it is another node, whose own sidecar says what is on it."""

    async def story(bench: Story) -> None:
        await app(bench)
        await settled(bench)
        node, csi_node = await node_of(bench), await bench.you.get(CSI_NODES, "n0")
        await vanish(bench)
        await wait(bench, 90)
        assert await gone(bench)
        for resource, obj in ((NODES, node), (CSI_NODES, csi_node)):
            meta = {"name": "n0", "labels": obj["metadata"].get("labels") or {}}
            await bench.you.create(resource, {"metadata": meta, "spec": obj.get("spec") or {}})
        await wait(bench, 120)
        assert await gone(bench) == {}
        assert len(await there(bench, VOLUMES)) == len(await there(bench, CLAIMS)) == 1

    play(story)


def test_the_report_goes_with_what_it_tells_of() -> None:
    async def story(bench: Story) -> None:
        await app(bench)
        await settled(bench)
        await vanish(bench)
        await wait(bench, 90)
        (volume,) = await there(bench, VOLUMES)
        await bench.you.patch(VOLUMES, volume, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        await bench.you.delete(VOLUMES, volume)
        await wait(bench, 700)
        assert await report(bench) is None

    play(story)


def test_B8_what_is_half_there_is_not_gone() -> None:
    def case(kept: str) -> None:
        async def story(bench: Story) -> None:
            await app(bench)
            await settled(bench)
            bench.nodes["n0"].kill()
            await bench.you.delete(CSI_NODES if kept == "Node" else NODES, "n0")
            await wait(bench, 1500)
            assert await gone(bench) == {}
            assert await told(bench) == []

        play(story)

    for kept in ["Node", "CSINode"]:
        case(kept)


# --- what is cleared away -------------------------------------------------------------------------------------------------


def test_A13_after_its_announcement_claims_that_are_made_again_and_their_volumes_go() -> None:
    seen = Watchman()

    async def story(bench: Story) -> None:
        await replicas(bench, 1)
        await app(bench)
        await app(bench, "lonely")
        await app(bench, "elsewhere", node="n1")
        await settled(bench)
        await announce(bench)
        await vanish(bench)
        await wait(bench, 400)
        assert sorted(await there(bench, CLAIMS)) == ["elsewhere", "lonely"]
        assert len(await there(bench, VOLUMES)) == 2
        done = (await gone(bench))["done"]
        assert [item["step"] for item in done] == ["MarkClaim", "DeleteClaim", "DeleteVolume", "ReleaseVolume"]
        assert (await gone(bench))["claims"][0]["name"] == "lonely"
        messages = [event["message"] for event in await all_of(bench, EVENTS) if event["involvedObject"]["kind"] == names.VOLUME]
        assert [message for message in messages if "scrub" in message]

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == ["data-db-0"]


def test_evidence_is_needed() -> None:
    def case(lies_on: str, announced: bool, cleared: bool) -> None:
        async def story(bench: Story) -> None:
            await one_replica(bench)
            await note(bench, "data-db-0", {names.LIES_ON: lies_on.format(uid=await uid_of(bench)) or None})
            await (announce(bench) if announced else wait(bench, 30))
            await vanish(bench)
            await wait(bench, 1500)
            assert (await there(bench, CLAIMS) == []) is cleared

        play(story, args=CLEANING)

    for lies_on, announced, cleared in [
        ("n0/{uid}", True, True),  # announced
        ("", True, True),  # the volume does not say where it was, and the report does
        ("n0/{uid}", False, False),  # A13 not announced
        ("n0/former", True, False),  # it was on a former machine
        ("{uid}", False, False),  # garbage
    ]:
        case(lies_on, announced, cleared)


def test_an_announcement_that_was_taken_back_counts_no_more() -> None:
    async def story(bench: Story) -> None:
        await one_replica(bench)
        await announce(bench)
        assert "ownerReferences" not in (await report(bench) or {})["metadata"]
        await change(bench, "n0", {"taints": None})
        await wait(bench, 30)
        assert (await report(bench) or {})["metadata"]["ownerReferences"]
        await vanish(bench)
        await wait(bench, 1500)
        assert await there(bench, CLAIMS) == ["data-db-0"]
        assert (await gone(bench))["evidence"] == "None"

    play(story, args=CLEANING)


def test_an_acknowledgement_counts_only_by_the_uid_of_this_very_machine_and_once_it_is_gone() -> None:
    async def story(bench: Story) -> None:
        await one_replica(bench)
        uid = await uid_of(bench)
        await say(bench, uid)  # while the node is there
        await vanish(bench)
        await wait(bench, 1500)
        assert (await gone(bench))["evidence"] == "None"
        for word in ("ticket 7", "the-uid-of-another"):
            await say(bench, word)
            await wait(bench, 1500)
            assert await there(bench, CLAIMS) == ["data-db-0"]
        await say(bench, uid)
        await wait(bench, 400)
        assert await there(bench, CLAIMS) == []

    play(story, args=CLEANING)


def test_F3_a_claim_that_a_pod_with_a_node_has_stays() -> None:
    async def story(bench: Story) -> None:
        await one_replica(bench)
        await announce(bench)
        await vanish(bench, pods=False)
        await wait(bench, 1500)
        assert await there(bench, CLAIMS) == ["data-db-0"]
        await bench.you.delete(PODS, "data-db-0", namespace="default", grace_period_seconds=0)
        await wait(bench, 1500)
        assert await there(bench, CLAIMS) == []

    play(story, args=CLEANING)


# --- bad answers ----------------------------------------------------------------------------------------------------------
def test_what_cannot_be_read_or_written_destroys_nothing_and_is_made_good_later() -> None:
    def case(verb: str, resource: Resource, error: ApiError) -> None:
        broken: list[bool] = []

        def refuse(call: Call) -> ApiError | None:
            return error if broken and (call.verb, call.resource) == (verb, resource) else None

        seen = Watchman(refuse)

        async def story(bench: Story) -> None:
            await one_replica(bench)
            await announce(bench)
            broken.append(True)
            await vanish(bench)
            await wait(bench, 900)
            assert await there(bench, CLAIMS) == ["data-db-0"]
            broken.clear()
            await wait(bench, 1500)
            assert await there(bench, CLAIMS) == []

        play(story, seen, args=CLEANING)

    for verb, resource, error in [
        ("get", NODES, Unavailable("no answer")),  # the Node cannot be read
        ("get", NODES, NotFound("404 page", status=404, reason="")),  # a proxy says 404
        ("get", CSI_NODES, Forbidden("no", status=403)),  # the CSINode cannot be read
        ("list", STATEFUL_SETS, Forbidden("no", status=403)),  # StatefulSets cannot be listed
        ("list", PODS, Unavailable("no answer")),  # pods cannot be listed
        ("list", VOLUMES, Gone("old", status=410)),  # 410 for a list of volumes
        ("patch", CLAIMS, Forbidden("no", status=403)),  # claims may not be marked
        ("delete", CLAIMS, Forbidden("no", status=403)),  # claims may not be deleted
    ]:
        case(verb, resource, error)


def test_a_dry_run_writes_nothing() -> None:
    seen = Watchman()

    async def story(bench: Story) -> None:
        await wait(bench, 1000)

    play(story, seen, args=(*CLEANING, "--dry-run"))
    assert not [call for call in seen.calls if call.resource == LEASES and call.verb not in ("get", "list", "watch")]


def looking(bench: Story) -> list[str]:
    """Whose sidecar says of itself that it looks after gone nodes."""
    said = f'csi_node_sidecar_looks_after_gone_nodes{{driver_name="{DRIVER}"}} 1'
    return [
        name for name, node in bench.nodes.items() if node.alive and node.tools and said in page(node.tools.metrics.families()).decode()
    ]


def test_a_lease_that_somebody_renews_and_does_nothing_with_has_nobody_that_says_to_look() -> None:
    """A stolen token of a node whose own sidecar does not run."""

    async def story(bench: Story) -> None:
        await settled(bench, besides="")
        thief = await holder(bench)
        assert looking(bench) == [thief]
        bench.nodes[thief].lay_down()
        for number in range(12):
            await wait(bench, 300)
            spec = {"renewTime": f"2026-01-01T00:00:00.{number:06}Z"}
            await bench.you.patch(LEASES, names.watch(DRIVER), {"spec": spec}, namespace="default", content_type=MERGE_PATCH)
        assert await holder(bench) == thief
        assert looking(bench) == []

    play(story)


# --- what changes between two reads -----------------------------------------------------------------------------------


def meanwhile(verb: str, resource: Resource, change: Callable[[Story], object], *, marked: bool = False) -> list[str]:
    """Once, right before that request, somebody changes something: which claims are left some minutes later. `marked`: the claim is."""
    benches: list[Story] = []
    marks: list[bool] = [not marked]
    left: list[str] = []

    def on(call: Call) -> None:
        if benches and any(marks) and (call.verb, call.resource) == (verb, resource):
            change(benches.pop())
        marks.append((call.verb, call.resource) == ("patch", CLAIMS))

    async def story(bench: Story) -> None:
        await one_replica(bench)
        await announce(bench)
        await vanish(bench)
        benches.append(bench)
        await wait(bench, 300)
        assert not benches
        left.extend(await there(bench, CLAIMS))

    play(story, Watchman(on), args=CLEANING)
    return left


def write(resource: Resource, name: str, change: Json, *, namespace: str = "") -> Callable[[Story], object]:
    return lambda bench: bench.cluster.patch(resource, name, change, namespace=namespace, content_type=MERGE_PATCH)


def test_a_claim_that_is_changed_right_before_its_deletion_stays() -> None:
    elsewhere = {"metadata": {"annotations": {names.SELECTED_NODE: "n2"}}}
    assert meanwhile("delete", CLAIMS, write(CLAIMS, "data-db-0", elsewhere, namespace="default")) == ["data-db-0"]


def test_a_volume_that_says_another_machine_by_now_keeps_its_claim() -> None:
    def change(bench: Story) -> None:
        volume = bench.cluster.get(CLAIMS, "data-db-0", namespace="default").obj["spec"]["volumeName"]
        write(VOLUMES, volume, {"metadata": {"annotations": {names.LIES_ON: "n0/another"}}})(bench)

    assert meanwhile("get", VOLUMES, change, marked=True) == ["data-db-0"]


def test_who_is_the_looker_no_more_clears_nothing() -> None:
    taken = {"spec": {"holderIdentity": f"uid-other/{DRIVER}"}}
    assert meanwhile("patch", CLAIMS, write(LEASES, names.watch(DRIVER), taken, namespace="default")) == ["data-db-0"]


def test_a_node_that_was_there_for_a_moment_is_missed_from_then_on() -> None:
    """Its kubelet has registered the Node, and no driver its CSINode."""

    async def story(bench: Story) -> None:
        await one_replica(bench)
        await announce(bench)
        await vanish(bench)
        await wait(bench, 1200)
        await bench.you.create(NODES, {"metadata": {"name": "n0"}, "spec": {}})
        await wait(bench, 700)
        await bench.you.delete(NODES, "n0")
        await wait(bench, 1000)
        assert await there(bench, CLAIMS) == ["data-db-0"]
        await wait(bench, 1500)
        assert await there(bench, CLAIMS) == []

    play(story, args=(*CLEANING, "--node-gone-after=30m"))


def test_one_failed_request_delays_news_by_a_minute_and_resolves_no_alert() -> None:
    def case(resource: Resource, verb: str) -> None:
        fails, failed = False, list[str]()

        def refuse(call: Call) -> ApiError | None:
            if not fails or failed or (call.verb, call.resource) != (verb, resource):
                return None
            failed.append(call.name)
            return Unavailable("away", status=503)

        async def counted(bench: Story) -> bool:
            pages = [page(node.tools.metrics.families()).decode() for node in bench.nodes.values() if node.alive and node.tools]
            return any(f'lost_volumes{{evidence="{said}"}} 1' in each for each in pages for said in ("None", "Acknowledged"))

        async def story(bench: Story) -> None:
            nonlocal fails
            await one_replica(bench)
            await vanish(bench)
            await wait(bench, 120)
            assert await counted(bench)
            fails = True
            await say(bench, await uid_then(bench))
            for _ in range(30):
                await wait(bench, 5)
                assert await counted(bench)
            assert failed and (await gone(bench))["evidence"] == "Acknowledged"

        play(story, Watchman(refuse))

    case(VOLUMES, "list")
    case(CSI_NODES, "get")


async def uid_then(bench: Story) -> str:
    stored = await report(bench)
    assert stored is not None
    return str(stored["status"]["nodeUID"])


# --- many at once ---------------------------------------------------------------------------------------------------------


async def left_by(bench: Story, node: str, uid: str) -> None:
    """A volume of which nobody has the claim any more."""
    term = {"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": DRIVER, "volumeHandle": node},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    meta = {"name": f"pv-{node}", "annotations": {names.LIES_ON: f"{node}/{uid}"}}
    await bench.you.create(VOLUMES, {"metadata": meta, "spec": spec})


def test_of_more_gone_nodes_than_one_look_takes_all_are_told_and_at_rest_they_cost_little() -> None:
    seen = Watchman()
    lost = [f"gone-{number:02}" for number in range(45)]

    async def story(bench: Story) -> None:
        for node in lost:
            await left_by(bench, node, f"uid-{node}")
        await wait(bench, 400)
        assert sorted(one["spec"]["nodeName"] for one in await all_of(bench, DRAIN_REPORTS) if "gone" in one["status"]) == lost
        name = names.drain_report(lost[-1], DRIVER)
        await say(bench, f"uid-{lost[-1]}", name=name)
        await wait(bench, 90)
        stored = await bench.you.get(DRAIN_REPORTS, name)
        assert stored["status"]["gone"]["evidence"] == "Acknowledged", "news come before what is only looked at again"
        await wait(bench, 600)
        before = len(seen.calls)
        await wait(bench, 3600)
        assert len(seen.calls) - before < 3600, "one a second, for all of the driver's sidecars"

    play(story, seen, args=CLEANING)
