"""Volumes that people made: the running sidecar judges those that lie here, whatever they ask for, and does nothing else with them."""

from dataclasses import replace
from typing import Any

from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from hack.sim.world.node import TOPOLOGY_KEY as KEY
from sidecar.drain.facts.watched import OpenClaims, open_claims
from sidecar.kube.api import VOLUMES
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Owner, Source, Volume
from tests.harness import samples
from tests.harness.drain.listed_cluster import pod, volume
from tests.harness.drain.simulated import change, play, report_of, wait

Json = dict[str, Any]


def term(*pairs: tuple[str, str]) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in pairs]}


async def premade(bench: NotebookWorld, name: str, *terms: Json, policy: str = "Retain", released: bool = True) -> None:
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
    agent = replace(Pod.of(pod("agent", "shared", "alone", "own", node="n1")), ephemeral=("own",))
    agent = replace(agent, owner=Owner("apps/v1", names.DAEMON_SET, "agent", "u"))
    other = Pod.of(pod("db", "shared", node="n1"))
    bound = {"status": {"phase": "Bound"}}
    held = [Volume.of(volume(f"pv-{name}", "n1", claim=name) | bound) for name in ("shared", "alone", "own", "idle")]
    assert open_claims(held, [agent, other]) == OpenClaims(unused=("default/idle",), kept=("default/alone",))
    assert open_claims(held, [agent]) == OpenClaims(unused=("default/idle",), kept=("default/alone", "default/shared"))


async def told(bench: NotebookWorld, node: str) -> tuple[str, str]:
    retire = (await report_of(bench, node))["verdicts"]["retire"]
    return retire["status"], retire["reason"]


BY_HOSTNAME = term((names.HOSTNAME, "n0"))
BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}


def test_a_volume_that_only_this_node_reaches_blocks_whatever_label_says_so() -> None:
    def case(asked: Json) -> None:
        async def story(bench: NotebookWorld) -> None:
            await change(bench, "n0", labels={"disk": "fast"})
            await premade(bench, "kept", asked)
            await wait(bench, 10)
            assert await told(bench, "n0") == ("False", "ReclaimRetain")
            assert await told(bench, "n1") == ("True", "NoVolumes")

        play(story)

    for asked in [
        BY_HOSTNAME,  # hostname
        BY_NAME,  # name
        term((KEY, "n0"), ("disk", "fast")),  # driver and another
    ]:
        case(asked)


def test_a_label_that_comes_and_goes_is_followed() -> None:
    """Without it nobody knows, if other nodes have it; the node does not count as empty then."""

    async def story(bench: NotebookWorld) -> None:
        await change(bench, "n1", labels={"disk": "slow"})
        await premade(bench, "kept", term(("disk", "fast")))
        await wait(bench, 10)
        assert await told(bench, "n0") == ("Unknown", "NotKnown")
        assert await told(bench, "n1") == ("True", "NoVolumes")
        await change(bench, "n0", labels={"disk": "fast"})
        await wait(bench, 70)
        assert await told(bench, "n0") == ("False", "ReclaimRetain")
        await change(bench, "n0", labels={"disk": "slow"})
        await wait(bench, 70)
        assert await told(bench, "n0") == ("True", "NoVolumes")

    play(story)


def test_what_the_driver_cannot_be_shown_to_have_is_never_deleted() -> None:
    async def story(bench: NotebookWorld) -> None:
        await premade(bench, "leaving", BY_HOSTNAME, policy="Delete")
        await wait(bench, 60)
        assert await told(bench, "n0") == ("False", "ReleasePending")
        assert (await bench.you.get(VOLUMES, "leaving"))["spec"]["csi"]["volumeHandle"] == "by-hand-leaving"

    play(story, nodes=("n0",))


def test_no_clone_is_made_of_a_volume_that_may_lie_elsewhere() -> None:
    """For drain decisions it is in the cache, which says nothing about where its data is."""

    async def story(bench: NotebookWorld) -> None:
        await premade(bench, "source", BY_HOSTNAME, released=False)
        await wait(bench, 3)
        sidecar = bench.sidecar("n0")
        assert sidecar is not None and "source" in sidecar.caches.volumes
        assert sidecar.provisioning.room._volume_here("source") is None
        clone = replace(samples.claim(), source=Source("PersistentVolumeClaim", "", "gone", "default"))
        assert sidecar.provisioning.room._source_here(clone) is False

    play(story, nodes=("n0",))
