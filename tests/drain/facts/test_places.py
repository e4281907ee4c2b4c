"""Where volumes are, in the whole program, also those that people made: what labels do not tell, pods and the driver tell."""

from dataclasses import replace
from typing import Any

from hack.sim.world.node import DRIVER
from hack.sim.world.node import TOPOLOGY_KEY as KEY
from sidecar.drain.facts.watched import OpenClaims, open_claims
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, VOLUMES
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Owner, Volume
from tests.harness.drain.listed_cluster import pod as running_pod
from tests.harness.drain.listed_cluster import volume
from tests.harness.drain.simulated import Bench, change, do, fill, play, report_of, wait

Json = dict[str, Any]


def term(*values: str) -> Json:
    return {"matchExpressions": [{"key": KEY, "operator": "In", "values": list(values)}]}


async def static(bench: Bench, name: str, *terms: Json, handle: str = "", claim: bool = True) -> None:
    """A volume that a person made, and its claim, bound to each other."""
    spec: Json = {
        "csi": {"driver": DRIVER, "volumeHandle": handle or f"by-hand-{name}"},
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "by-hand",
        **({"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}),
    }
    if claim:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
        made = await bench.you.create(
            CLAIMS, {"metadata": {"name": name}, "spec": {**asked, "storageClassName": "by-hand"}}, namespace="default"
        )
        spec["claimRef"] = {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}
    obj = await bench.you.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    await bench.you.replace(VOLUMES, {**obj, "status": {"phase": "Bound" if claim else "Available"}}, name=name, subresource="status")


async def pod(bench: Bench, name: str, claim: str, *, node: str = "") -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes} | ({"nodeName": node} if node else {})
    await bench.you.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default")


async def retire(bench: Bench, node: str) -> tuple[str, str]:
    said = (await report_of(bench, node))["verdicts"]["retire"]
    return said["status"], said["reason"]


async def cordon(bench: Bench, *nodes: str) -> None:
    for node in nodes:
        await change(bench, node, {"unschedulable": True})


def test_a_volume_without_affinity_is_where_its_last_pod_ran() -> None:
    async def story(bench: Bench) -> None:
        await static(bench, "loose")
        await wait(bench, 10)
        assert [await retire(bench, node) for node in ("n0", "n1")] == [("Unknown", "NotKnown")] * 2
        said = (await report_of(bench, "n1"))["verdicts"]["retire"]["message"]
        assert "which have no node affinity and which do not say who made them: loose; give them the affinity of their node" in said
        await pod(bench, "p", "loose", node="n0")
        await wait(bench, 10)
        assert [(await retire(bench, node))[0] for node in ("n0", "n1")] == ["False", "Unknown"]
        # Whoever empties a node is told more: the pod runs on another one.
        await cordon(bench, "n1")
        await wait(bench, 100)
        assert (await retire(bench, "n1"))[0] == "True"
        await change(bench, "n1", {"unschedulable": None})
        assert "VolumeInUse" in [blocker["reason"] for blocker in (await report_of(bench, "n0"))["blockers"]]
        await cordon(bench, "n0")
        await bench.you.delete(PODS, "p", namespace="default", grace_period_seconds=0)
        await wait(bench, 200)
        assert (await retire(bench, "n0"))[0] == "False"
        for _ in range(2):
            await do(bench, "kill n0")
            await wait(bench, 200)
            assert await retire(bench, "n0") == ("False", "LastCopy"), "the report tells it to the next process"
        await bench.you.delete(CLAIMS, "loose", namespace="default")
        await wait(bench, 5)
        await bench.you.delete(VOLUMES, "loose")
        await wait(bench, 120)
        assert (await retire(bench, "n0"))[0] == "True"

    play(story)


def test_a_volume_that_may_be_on_several_nodes_is_known_to_be_on_none() -> None:
    async def story(bench: Bench) -> None:
        for node in ("n0", "n1"):
            await change(bench, node, labels={"zone": "a"})
        await static(bench, "either", term("n0"), {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]})
        await wait(bench, 100)
        unknown = ("Unknown", "NotKnown")
        assert [await retire(bench, node) for node in ("n0", "n1", "n2")] == [unknown, unknown, ("True", "NoVolumes")]
        said = (await report_of(bench, "n0"))["verdicts"]["retire"]["message"]
        assert "whose node affinity several nodes match and which do not say who made them: either; make them anew" in said
        await bench.you.patch(VOLUMES, "either", {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}, content_type=MERGE_PATCH)
        await wait(bench, 100)
        assert [(await retire(bench, node))[0] for node in ("n0", "n1")] == ["True", "True"]

    play(story, nodes=("n0", "n1", "n2"))


def test_a_volume_that_the_driver_has_here_under_the_name_of_another_node_blocks() -> None:
    async def story(bench: Bench) -> None:
        made = fill(bench, "n0", 1 << 30)
        await static(bench, "old", term("former-name"), handle=made, claim=False)
        await wait(bench, 700)
        assert await retire(bench, "n0") == ("False", "NodeRenamed")
        assert await retire(bench, "n1") == ("True", "NoVolumes")
        await bench.you.delete(VOLUMES, "old")
        await bench.you.patch(VOLUMES, "old", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        await wait(bench, 130)
        assert (await retire(bench, "n0"))[0] == "True"

    play(story)


# --- Volumes that people made: the running sidecar judges those that lie here, whatever they ask for, and does nothing else with them ---


def asking(*pairs: tuple[str, str]) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in pairs]}


async def premade(bench: Bench, name: str, *terms: Json, policy: str = "Retain", released: bool = True) -> None:
    """A volume that a person made for the driver; its claim is gone."""
    spec: Json = {
        "csi": {"driver": DRIVER, "volumeHandle": f"by-hand-{name}"},
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}},
        "claimRef": {"namespace": "default", "name": "gone", "uid": "uid-gone"},
    }
    await bench.you.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    if released:
        obj = await bench.you.get(VOLUMES, name)
        await bench.you.replace(VOLUMES, {**obj, "status": {"phase": "Released"}}, name=name, subresource="status")


def test_claims_that_only_pods_of_daemon_sets_name_are_open_as_well() -> None:
    agent = replace(Pod.of(running_pod("agent", "shared", "alone", "own", node="n1")), ephemeral=("own",))
    agent = replace(agent, owner=Owner("apps/v1", names.DAEMON_SET, "agent", "u"))
    other = Pod.of(running_pod("db", "shared", node="n1"))
    bound = {"status": {"phase": "Bound"}}
    held = [Volume.of(volume(f"pv-{name}", "n1", claim=name) | bound) for name in ("shared", "alone", "own", "idle")]
    assert open_claims(held, [agent, other]) == OpenClaims(unused=("default/idle",), kept=("default/alone",))
    assert open_claims(held, [agent]) == OpenClaims(unused=("default/idle",), kept=("default/alone", "default/shared"))


async def told(bench: Bench, node: str) -> tuple[str, str]:
    retire = (await report_of(bench, node))["verdicts"]["retire"]
    return retire["status"], retire["reason"]


BY_HOSTNAME = asking((names.HOSTNAME, "n0"))


def test_what_the_driver_cannot_be_shown_to_have_is_never_deleted() -> None:
    async def story(bench: Bench) -> None:
        await premade(bench, "leaving", BY_HOSTNAME, policy="Delete")
        await wait(bench, 60)
        assert await told(bench, "n0") == ("False", "ReleasePending")
        assert (await bench.you.get(VOLUMES, "leaving"))["spec"]["csi"]["volumeHandle"] == "by-hand-leaving"

    play(story, nodes=("n0",))
