"""Late binding with published capacity, as the scheduler plays its part of it."""

from sidecar.kube.api import CLAIMS, CLASSES, PODS, Resource
from tests.contract_control_plane.land import IMMEDIATE, LATE, Land

NO_ROOM = "did not have enough free storage"


async def begin(land: Land, *nodes: str, capacity: bool = True) -> None:
    """When the scheduler, which hears of drivers and classes by watches of their own, knows of them."""
    await land.begin(*nodes, capacity=capacity)
    await land.storage_class("late", LATE)
    while capacity and not await asks_for_capacity(land):
        pass


async def asks_for_capacity(land: Land) -> bool:
    """A pod that overtakes its driver is placed without capacity. One that is tried before others shows whether it would be."""
    await land.claim("tried", "late", size="1Ei")
    await land.pod("tried", "tried")

    async def told() -> bool:
        return await land.selected("tried") != "" or await land.refused("tried", NO_ROOM)

    await land.until(told, "the scheduler has tried the pod")
    knows = not await land.selected("tried")
    for resource in (PODS, CLAIMS):
        await land.api.delete(resource, "tried", namespace=land.namespace)
    await land.until(lambda: gone(land, CLAIMS, "tried"), "what was tried is gone")
    return knows


async def gone(land: Land, resource: Resource, name: str) -> bool:
    return not await land.exists(resource, name)


async def node_of(land: Land, pod: str) -> str:
    return str((await land.get_pod(pod))["spec"].get("nodeName", ""))


async def nothing_selected(land: Land, claim: str = "data") -> bool:
    return not await land.selected(claim)


async def test_a_claim_without_a_pod_waits(land: Land) -> None:
    await begin(land, "n1")
    await land.capacity("n1", "late", "10Gi")
    await land.claim("data", "late")
    await land.always(lambda: nothing_selected(land), "nobody selects a node")


async def test_the_node_that_has_room_is_selected(land: Land) -> None:
    await begin(land, "n1", "n2", "n3")
    for node, size in {"n1": "1Gi", "n2": "20Gi", "n3": "4Gi"}.items():
        await land.capacity(node, "late", size)
    await land.claim("data", "late", size="5Gi")
    await land.pod("app", "data")
    await land.until(lambda: land.selected("data"), "a node is selected")
    assert await land.selected("data") == land.own("n2")
    assert await node_of(land, "app") == ""


async def test_a_pod_is_told_that_there_is_no_room_and_room_that_appears_is_found(land: Land) -> None:
    await begin(land, "n1", "n2")
    await land.capacity("n1", "late", "1Gi")
    await land.claim("data", "late", size="5Gi")
    await land.pod("app", "data")
    await land.until(lambda: land.refused("app", NO_ROOM), "the pod is told")
    await land.always(lambda: nothing_selected(land), "no node is selected")
    await land.capacity("n1", "late", "5Gi")
    await land.until(lambda: land.selected("data"), "a node is selected")
    assert await land.selected("data") == land.own("n1")


async def test_capacity_of_another_class_is_not_counted(land: Land) -> None:
    await begin(land, "n1")
    await land.storage_class("other", LATE)
    await land.capacity("n1", "other", "100Gi")
    await land.claim("data", "late")
    await land.pod("app", "data")
    await land.until(lambda: land.refused("app", NO_ROOM), "the pod is told")
    assert await nothing_selected(land)


async def test_without_the_drivers_word_capacity_is_not_asked_for(land: Land) -> None:
    await begin(land, "n1", capacity=False)
    await land.claim("data", "late", size="100Gi")
    await land.pod("app", "data")
    await land.until(lambda: land.selected("data"), "a node is selected")


async def test_a_claim_that_is_given_back_is_placed_again(land: Land) -> None:
    await begin(land, "n1", "n2")
    await land.capacity("n1", "late", "10Gi")
    await land.claim("data", "late", size="5Gi")
    await land.pod("app", "data")
    await land.until(lambda: land.selected("data"), "a node is selected")
    await land.capacity("n1", "late", "1Gi")
    await land.capacity("n2", "late", "10Gi")
    await land.select("data", None)
    await land.always(lambda: nothing_selected(land), "it is not placed again at once", seconds=0.7)

    async def elsewhere() -> bool:
        return await land.selected("data") == land.own("n2")

    await land.until(elsewhere, "the other node is selected")


async def test_a_pod_goes_where_its_volume_is(land: Land) -> None:
    await begin(land, "n1", "n2", "n3")
    await land.capacity("n2", "late", "10Gi")
    claim = await land.claim("data", "late")
    await land.pod("first", "data")
    await land.until(lambda: land.selected("data"), "a node is selected")
    await land.volume(claim, node="n2")
    await land.until(lambda: is_running(land, "first"), "the pod runs")
    assert await node_of(land, "first") == land.own("n2")
    await land.pod("second", "data")
    await land.until(lambda: is_running(land, "second"), "another pod runs")
    assert await node_of(land, "second") == land.own("n2")


async def is_running(land: Land, pod: str) -> bool:
    return await land.phase(PODS, pod) == "Running"


async def test_a_pod_whose_volume_is_nowhere_reachable_stays_pending(land: Land) -> None:
    await begin(land, "n1")
    claim = await land.claim("data", "late")
    await land.volume(claim, node="n9")

    async def bound() -> bool:
        return await land.phase(CLAIMS, "data") == "Bound"

    await land.until(bound, "the claim is bound")
    await land.pod("app", "data")
    await land.until(lambda: land.refused("app", "didn't match PersistentVolume's node affinity"), "the pod is told")


async def test_two_claims_of_one_pod_go_to_one_node(land: Land) -> None:
    await begin(land, "n1", "n2")
    await land.storage_class("other", LATE)
    for node, class_ in (("n1", "late"), ("n2", "late"), ("n2", "other")):
        await land.capacity(node, class_, "10Gi")
    first, second = await land.claim("first", "late"), await land.claim("second", "other")
    await land.pod("app", "first", "second")
    await land.until(lambda: land.selected("first"), "a node is selected for the first")
    await land.until(lambda: land.selected("second"), "a node is selected for the second")
    assert {await land.selected("first"), await land.selected("second")} == {land.own("n2")}
    await land.volume(first, node="n2")
    await land.always(lambda: is_waiting(land, "app"), "one volume is not enough")
    await land.volume(second, node="n2")
    await land.until(lambda: is_running(land, "app"), "the pod runs")


async def test_a_claim_whose_node_is_selected_already_binds_the_choice_for_the_others(land: Land) -> None:
    await begin(land, "n1", "n2", "n3", "n4")
    for node in ("n1", "n2", "n3", "n4"):
        await land.capacity(node, "late", "10Gi")
    for claim in ("first", "second"):
        await land.claim(claim, "late")
    await land.select("first", "n3")
    await land.pod("app", "first", "second")
    await land.until(lambda: land.selected("second"), "a node is selected for the second")
    assert {await land.selected("first"), await land.selected("second")} == {land.own("n3")}


async def is_waiting(land: Land, pod: str) -> bool:
    return not await node_of(land, pod)


async def test_a_pod_waits_for_an_immediate_claim_without_placing_it(land: Land) -> None:
    await begin(land, "n1")
    await land.storage_class("now", IMMEDIATE)
    claim = await land.claim("data", "now")
    await land.pod("app", "data")
    await land.until(lambda: land.refused("app", "pod has unbound immediate PersistentVolumeClaims"), "the pod is told")
    assert await nothing_selected(land)
    await land.volume(claim, node="n1")
    await land.until(lambda: is_running(land, "app"), "the pod runs")


async def test_a_pod_waits_for_a_claim_that_is_not_there_yet(land: Land) -> None:
    await begin(land, "n1")
    await land.capacity("n1", "late", "10Gi")
    await land.pod("app", "data")
    await land.until(lambda: land.refused("app", 'persistentvolumeclaim "data" not found'), "the pod is told")
    await land.claim("data", "late")
    await land.until(lambda: land.selected("data"), "a node is selected")


async def test_a_class_may_leave_nodes_out(land: Land) -> None:
    await land.begin("n1", "n2")
    allowed = [{"matchLabelExpressions": [{"key": land.key, "values": ["n2"]}]}]
    body = {"metadata": {"name": land.own("late")}, "provisioner": land.driver, "volumeBindingMode": LATE, "allowedTopologies": allowed}
    await land.api.create(CLASSES, body)
    for node in ("n1", "n2"):
        await land.capacity(node, "late", "10Gi")
    await land.claim("data", "late")
    await land.pod("app", "data")
    await land.until(lambda: land.selected("data"), "a node is selected")
    assert await land.selected("data") == land.own("n2")
    await land.claim("more", "late")
    await land.pod("pinned", "more", nodeSelector={land.key: "n1"})
    await land.until(lambda: land.refused("pinned", "0/2 nodes are available"), "the pinned pod is told")
    assert await nothing_selected(land, "more")


async def test_a_cordoned_node_gets_no_pod(land: Land) -> None:
    await begin(land, "n1")
    node, patch = land.own("n1"), {"spec": {"unschedulable": True}}
    await land.patch_node(node, patch)
    await land.capacity("n1", "late", "10Gi")
    await land.claim("data", "late")
    await land.pod("app", "data")
    await land.until(lambda: land.refused("app", "unschedulable"), "the pod is told")
    await land.patch_node(node, {"spec": {"unschedulable": None}})
    await land.until(lambda: land.selected("data"), "a node is selected")


async def test_a_pod_without_claims_runs_somewhere(land: Land) -> None:
    await begin(land, "n1")
    await land.pod("app")
    await land.until(lambda: is_running(land, "app"), "the pod runs")
    await land.api.delete(PODS, "app", namespace=land.namespace)
    await land.until(lambda: gone(land, PODS, "app"), "the pod goes")


async def test_a_tainted_node_takes_only_pods_that_tolerate_it(land: Land) -> None:
    await land.begin("n1")
    taint = {"key": "example.com/leaves", "value": "retire", "effect": "NoSchedule"}
    soft = {"key": "example.com/soft", "effect": "PreferNoSchedule"}
    await land.patch_node(land.own("n1"), {"spec": {"taints": [taint, soft]}})
    on_it = {"nodeSelector": {land.key: "n1"}}

    async def runs(pod: str) -> bool:
        return await land.phase(PODS, pod) == "Running"

    await land.pod("other", **on_it)
    await land.until(lambda: land.refused("other", "untolerated taint"), "it waits")
    await land.pod("tolerant", tolerations=[{"key": "example.com/leaves", "operator": "Exists"}], **on_it)
    await land.until(lambda: runs("tolerant"), "who tolerates it runs")
    await land.patch_node(land.own("n1"), {"spec": {"taints": [soft]}})
    await land.until(lambda: runs("other"), "who waited runs when the taint is gone")
