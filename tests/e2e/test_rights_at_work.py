"""The program under the policies of deploy/components/own-node, with a token as the kubelet hands it out: all that it writes passes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Sidecar, all_of, claim, pod
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE
from tests.harness.cluster import CLAIMS, CLASSES, NODES, PODS, SOON, VOLUMES, Cluster
from tests.harness.persons import ACCOUNT, Person
from tests.harness.policies import Secured, create, in_force, secured

HURRY = (*SOON, "--retry-interval-start=200ms", "--retry-interval-max=2s")
PUBLISH = ("--enable-capacity", "--capacity-ownerref-level=-1")
CAPACITIES = f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities"


@pytest.fixture(scope="module")
def secure(plane: ControlPlane) -> Iterator[Secured]:
    with secured(plane, DEPLOY / "overlays" / "own-node") as made:
        volume = {"metadata": {"name": "x"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}
        volume["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": "x"}
        in_force(create(VOLUMES, volume), made.nobody, "bound to no pod")
        for node in ("n1", "n2"):
            label = {"metadata": {"labels": {f"topology.{DRIVER}/node": node}}}
            plane.request("PATCH", f"{NODES}/{node}", label, content_type=MERGE_PATCH)
            plane.add_csinode(node, DRIVER, node, [f"topology.{DRIVER}/node"])
        yield made
        for node in ("n1", "n2"):
            plane.request("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{node}")


@pytest.fixture
def denials(secure: Secured) -> Iterator[None]:
    """None in the whole test, by the API server's own count."""
    before = denied(secure.plane)
    assert before, "it counts none, not even those by which the fixture saw that the policies are in force"
    yield
    assert denied(secure.plane) == before


def denied(plane: ControlPlane) -> dict[str, float]:
    text = plane.metrics()
    found = re.findall(r"^apiserver_validating_admission_policy_check_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    return {labels: float(count) for labels, count in found if 'enforcement_action="deny"' in labels and "csi-node-sidecar" in labels}


@pytest.fixture
def world(secure: Secured, cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, Sidecar]]:
    """Two nodes with driver and sidecar."""
    with running(secure, cluster, tmp_path) as sidecars:
        yield sidecars


@pytest.fixture
def judging(secure: Secured, cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, Sidecar]]:
    """The same, which note on volumes which machine has them. For what they would write on Nodes they have no right here."""
    with running(secure, cluster, tmp_path, "--drain-report") as sidecars:
        yield sidecars


@contextmanager
def running(secure: Secured, cluster: Cluster, tmp_path: Path, *more: str) -> Iterator[dict[str, Sidecar]]:
    cluster.driver_name = DRIVER
    drivers = {name: cluster.driver(name) for name in ("n1", "n2")}
    cluster.classes(drivers["n1"])
    sidecars = {
        name: cluster.sidecar(
            driver,
            *(*HURRY, *PUBLISH, *more),
            kubeconfig=secure.kubeconfig(name, ACCOUNT).rename(tmp_path / f"{name}.kubeconfig"),
            environ={"NAMESPACE": NAMESPACE, "POD_NAME": f"sidecar-{name}"},
        )
        for name, driver in drivers.items()
    }
    with all_of([*drivers.values(), *sidecars.values()]):
        for sidecar in sidecars.values():
            sidecar.until_ready()
        yield sidecars


LATE, NOW = f"late-{DRIVER}", f"now-{DRIVER}"


def both(cluster: Cluster) -> None:
    """A claim that binds late, with its consumer, and one that binds at once."""
    cluster.create(CLAIMS, claim("late", LATE))
    cluster.create(CLAIMS, claim("now", NOW))
    cluster.create(PODS, pod("consumer", "late"))
    cluster.bound("late", "now")


@pytest.mark.usefixtures("denials", "world")
def test_volumes_claims_events_and_capacity(cluster: Cluster) -> None:
    """Made, bound, protected as the reclaim policy says, given back where it does not fit, deleted; and of each node its capacity."""

    def published() -> set[str]:
        return {item["nodeTopology"]["matchLabels"][f"topology.{DRIVER}/node"] for item in cluster.items(CAPACITIES)}

    until(lambda: published() == {"n1", "n2"}, "both nodes publish")
    both(cluster)
    until(lambda: any(event["reason"] == names.PROVISIONING_SUCCEEDED for event in cluster.events("now")), "it is told")
    volume = cluster.volume_of("now")["metadata"]["name"]
    for policy, protected in (("Retain", False), ("Delete", True)):
        cluster.patch(VOLUMES, volume, {"spec": {"persistentVolumeReclaimPolicy": policy}})
        until(lambda protected=protected: is_protected(cluster, volume) is protected, f"{policy}: the finalizer follows")  # type: ignore[misc]

    since = cluster.revision(CLAIMS)
    cluster.create(CLAIMS, claim("large", LATE, size="101Gi"))
    cluster.create(PODS, pod("large", "large", nodeSelector={"kubernetes.io/hostname": "n1"}))

    def selections() -> list[str]:
        metas = [item["object"]["metadata"] for item in cluster.history(CLAIMS, since)]
        return [str(meta.get("annotations", {}).get(names.SELECTED_NODE)) for meta in metas if meta["name"] == "large"]

    until(lambda: "n1,None" in ",".join(selections()), "n1 has it and gives it back")
    cluster.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    cluster.request("DELETE", CLAIMS)
    until(lambda: not cluster.items(VOLUMES), "the volumes are gone")
    cluster.delete(CLASSES, LATE)
    until(lambda: not published(), "nobody publishes")


def is_protected(cluster: Cluster, volume: str) -> bool:
    return names.VOLUME_FINALIZER in cluster.get(VOLUMES, volume)["metadata"]["finalizers"]


@pytest.mark.usefixtures("denials", "judging")
def test_which_machine_has_a_volume_is_noted(secure: Secured, cluster: Cluster) -> None:
    cluster.create(CLAIMS, claim("late", LATE))
    cluster.create(PODS, pod("consumer", "late", nodeSelector={"kubernetes.io/hostname": "n1"}))
    uid = cluster.get(NODES, "n1")["metadata"]["uid"]

    def noted() -> list[str | None]:
        return [(item["metadata"].get("annotations") or {}).get(names.LIES_ON) for item in cluster.items(VOLUMES)]

    until(lambda: noted() == [f"n1/{uid}"], "it is written with the volume")


@pytest.fixture
def labelled(secure: Secured, cluster: Cluster) -> Iterator[None]:
    """With the policy that labels claims, besides those about the sidecar."""
    policy = (DEPLOY / "components" / "scoped-watches" / "policy.yaml").read_text()
    secure.plane.apply(policy)
    trial = claim("trial", LATE)

    def gets_its_label() -> bool:
        made = cluster.create(f"{CLAIMS}?dryRun=All", trial)
        return names.CLAIM_LABEL in made["metadata"].get("labels", {})

    until(gets_its_label, "the policy is in force")
    yield
    secure.plane.kubectl("delete", "-f", "-", input=policy)


@pytest.mark.usefixtures("denials", "labelled", "world")
def test_the_label_of_claims_follows_scheduler_volume_controller_and_sidecar(cluster: Cluster) -> None:
    """It changes with a write of the sidecar too, and that write is not refused."""
    since = cluster.revision(CLAIMS)
    both(cluster)
    labels: dict[str, list[str]] = {"late": [], "now": []}
    for event in cluster.history(CLAIMS, since):
        meta = event["object"]["metadata"]
        if (label := meta["labels"][names.CLAIM_LABEL]) not in labels[meta["name"]][-1:]:
            labels[meta["name"]].append(label)
    late, now = (cluster.get(CLAIMS, name)["metadata"] for name in ("late", "now"))
    nodes = [f"node.{meta['annotations'][names.SELECTED_NODE]}" for meta in (late, now)]
    assert labels == {"late": ["waiting", nodes[0]], "now": ["waiting", names.open_claims(now["uid"]), nodes[1]]}


def test_a_revoked_token_makes_the_sidecar_unready_until_it_has_another(
    secure: Secured, world: dict[str, Sidecar], cluster: Cluster, tmp_path: Path
) -> None:
    """It goes with the pod it is bound to. The watches stay open, so that its caches have nothing to complain of."""
    plane, sidecar = secure.plane, world["n1"]
    plane.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
    for name in world:  # the API server remembers for a few seconds that it has accepted a token
        token = json.loads((tmp_path / f"{name}.kubeconfig").read_text())["users"][0]["user"]["token"]
        person = Person(plane, token)
        until(lambda person=person: person.ask("GET", cluster.path(CLAIMS))[0] == 401, "the token is refused")  # type: ignore[misc]
    cluster.create(CLAIMS, claim("now", NOW))
    until(lambda: not sidecar.ready(), "the token is not accepted, and that is told")
    (why,) = sidecar.page("/readyz")[1].splitlines()
    assert re.search(
        "^credentials: Degraded: the API server no longer accepts the credentials of the kubeconfig: .* [0-9]+ requests with 401", why
    )
    assert sidecar.page("/healthz")[0] == 200
    assert sidecar.metric("csi_node_sidecar_ready", scope="credentials") == 0
    secure.kubeconfig("n1", ACCOUNT).rename(tmp_path / "n1.kubeconfig")
    until(sidecar.ready, "the new token is used")
    cluster.bound("now")
