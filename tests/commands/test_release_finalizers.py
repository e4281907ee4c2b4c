"""Our finalizer goes off a driver's volumes when somebody says so, off no others, and never off one that is being deleted."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.cluster import ApiServer, Call, InProcessApi
from sidecar.commands.forms import TABLE, Told
from sidecar.commands.release_finalizers import Order, release
from sidecar.kube.api import CSI_DRIVERS, DAEMON_SETS, PODS, VOLUMES, KubeApi, Resource
from sidecar.kube.errors import ApiError, Conflict, Forbidden
from sidecar.model import names
from tests.contract.objects import volume
from tests.harness.cluster_tools import new_cluster

DRIVER = "driver.example"
PROTECTION = "kubernetes.io/pv-protection"
Json = dict[str, Any]


def cluster_with(*more: Json) -> ApiServer:
    """Two volumes of ours, one of another driver, one without the finalizer."""
    cluster = new_cluster()
    other = volume("foreign", finalizers=(names.VOLUME_FINALIZER,), handle="f")
    other["spec"]["csi"]["driver"] = "other.example"
    both = (names.VOLUME_FINALIZER, PROTECTION)
    ours = (volume("a", finalizers=both, handle="a"), volume("b", finalizers=both[:1], handle="b"))
    for obj in (*ours, volume("bare", handle="c"), other, *more):
        cluster.create(VOLUMES, obj)
    return cluster


def finalizers(cluster: ApiServer) -> dict[str, tuple[str, ...]]:
    return {obj["metadata"]["name"]: tuple(obj["metadata"].get("finalizers") or ()) for obj in cluster.store.all_of(VOLUMES)}


def ran(
    cluster: ApiServer,
    *,
    acts: bool = True,
    force: bool = False,
    terminating: bool = False,
    form: str = TABLE,
    before: Callable[[Call, KubeApi], Any] = lambda call, you: None,
) -> int:
    you = InProcessApi(cluster)

    async def call(one: Call) -> None:
        waited = before(one, you)
        if waited is not None:
            await waited

    async def main() -> int:
        with Told(form, driver=DRIVER, dryRun=not acts, volumes=[], running=[]) as told:
            order = Order(DRIVER, acts=acts, force=force, terminating=terminating)
            return await release(InProcessApi(cluster, before=call), order, told)

    return asyncio.run(main())


def test_ours_goes_others_stay_and_again_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with()
    assert ran(cluster) == 0
    assert names.VOLUME_FINALIZER in finalizers(cluster)["foreign"]
    assert finalizers(cluster)["a"][-1:] == (PROTECTION,)
    assert not any(names.VOLUME_FINALIZER in found for name, found in finalizers(cluster).items() if name != "foreign")
    assert "off 2 of 2" in capsys.readouterr().out
    assert ran(cluster) == 0
    assert f"No PersistentVolume of {DRIVER} has {names.VOLUME_FINALIZER}" in capsys.readouterr().out


def test_a_driver_whose_name_begins_with_the_other_s_keeps_its_finalizers_and_holds_nobody() -> None:
    cluster = cluster_with()
    longer = f"{DRIVER}.com"
    other = volume("longer", finalizers=(names.VOLUME_FINALIZER,), handle="l")
    other["spec"]["csi"]["driver"] = longer
    cluster.create(VOLUMES, other)
    for name in (DRIVER, longer):
        cluster.create(CSI_DRIVERS, {"metadata": {"name": name}, "spec": {}})
    sidecar = {"name": "p", "image": "csi-node-sidecar:v1", "args": ["--node-deployment", f"--csi-address=/plugins/{longer}/csi.sock"]}
    cluster.create(PODS, {"metadata": {"name": "sidecar", "namespace": "default"}, "spec": {"containers": [sidecar]}}, namespace="default")
    assert ran(cluster) == 0
    assert {name for name, found in finalizers(cluster).items() if names.VOLUME_FINALIZER in found} == {"foreign", "longer"}


# --- volumes that are being deleted -----------------------------------------------------------------------------------


def test_one_that_is_being_deleted_keeps_it_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with()
    cluster.delete(VOLUMES, "a")
    assert ran(cluster) == 1
    assert names.VOLUME_FINALIZER in finalizers(cluster)["a"] and names.VOLUME_FINALIZER not in finalizers(cluster)["b"]
    assert "PersistentVolume a is being deleted, and keeps it" in capsys.readouterr().out
    assert ran(cluster, terminating=True) == 0
    assert names.VOLUME_FINALIZER not in finalizers(cluster).get("a", ())


def test_one_that_somebody_deletes_meanwhile_keeps_it() -> None:
    cluster = cluster_with()

    def before(call: Call, you: KubeApi) -> Any:
        first = call.verb == "patch" and "deletionTimestamp" not in cluster.get(VOLUMES, "a").obj["metadata"]
        return you.delete(VOLUMES, "a") if first else None

    assert ran(cluster, before=before) == 1
    assert names.VOLUME_FINALIZER in finalizers(cluster)["a"]


# --- others who write -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "remedy"),
    [(Forbidden("not yours", status=403), "more rights"), (Conflict("again", status=409), "run it again")],
    ids=["rights", "races"],
)
def test_one_that_cannot_be_written_is_told_and_the_others_are_done(
    error: ApiError, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = cluster_with()

    def before(call: Call, you: KubeApi) -> None:
        if call.verb == "patch" and call.name == "a":
            raise error

    assert ran(cluster, before=before) == 1
    out, err = capsys.readouterr()
    assert "off 1 of 2" in out and remedy in err and err.count("\n") == 1
    assert names.VOLUME_FINALIZER not in finalizers(cluster)["b"]


# --- a sidecar that still runs ----------------------------------------------------------------------------------------


def template(driver: str, image: str = "csi-node-sidecar:1") -> Json:
    path = {"path": f"/var/lib/kubelet/plugins/{driver}"}
    return {"containers": [{"name": "c", "image": image, "args": ["--node-deployment"]}], "volumes": [{"name": "p", "hostPath": path}]}


def with_daemon_set(cluster: ApiServer, driver: str, image: str = "csi-node-sidecar:1") -> ApiServer:
    cluster.create(CSI_DRIVERS, {"metadata": {"name": "other.example"}, "spec": {}})
    labels = {"app": "x"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template(driver, image)}}
    cluster.create(DAEMON_SETS, {"metadata": {"name": "sidecars"}, "spec": spec}, namespace="default")
    return cluster


def with_pod(cluster: ApiServer, driver: str) -> ApiServer:
    cluster.create(PODS, {"metadata": {"name": "alone"}, "spec": template(driver)}, namespace="default")
    return cluster


@pytest.mark.parametrize(
    ("cluster", "who"),
    [
        (with_daemon_set(cluster_with(), DRIVER), "DaemonSet default/sidecars"),
        (with_daemon_set(cluster_with(), "nothing-that-names-it"), "DaemonSet default/sidecars"),
        (with_pod(cluster_with(), DRIVER), "Pod default/alone"),
    ],
    ids=["its DaemonSet", "one that names no driver", "a pod that is left"],
)
def test_while_one_runs_it_refuses(cluster: ApiServer, who: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = finalizers(cluster)
    assert ran(cluster) == 1
    out, err = capsys.readouterr()
    assert out == "" and who in err and "--force" in err and err.count("\n") == 1
    assert finalizers(cluster) == before
    assert ran(cluster, acts=False) == 0 and "This would be refused" in capsys.readouterr().out
    assert ran(cluster, force=True) == 0
    assert finalizers(cluster) != before


@pytest.mark.parametrize(
    "cluster",
    [with_daemon_set(cluster_with(), "other.example"), with_daemon_set(cluster_with(), DRIVER, "csi-provisioner:v3.4.1")],
    ids=["another driver's", "upstream's"],
)
def test_others_may_run(cluster: ApiServer) -> None:
    assert ran(cluster) == 0


@pytest.mark.parametrize("resource", [DAEMON_SETS, PODS], ids=str)
def test_where_that_cannot_be_asked_it_refuses(resource: Resource, capsys: pytest.CaptureFixture[str]) -> None:
    def before(call: Call, you: KubeApi) -> None:
        if (call.verb, call.resource) == ("list", resource):
            raise Forbidden("not yours", status=403)

    assert ran(cluster_with(), before=before) == 1
    assert "could not be asked: not yours" in capsys.readouterr().err
    assert ran(cluster_with(), before=before, force=True) == 0


def test_without_a_word_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with()
    before = cluster.store.all_of(VOLUMES)
    assert ran(cluster, acts=False) == 0
    assert [*cluster.store.all_of(VOLUMES)] == [*before]
    out = capsys.readouterr().out
    assert "would take the finalizer off PersistentVolume a\n" in out and "nothing was changed: say --yes" in out
