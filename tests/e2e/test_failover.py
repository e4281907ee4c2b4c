"""Fail-over as a process on a real control plane, whose own controllers attach volumes and make pods again.

Node `n2` dies: its kubelet, which kwok plays, is silent, and its Node is not Ready. The sidecar of `n1` acts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.kwok import KWOK_LABEL
from hack.lib.processes import Process
from hack.lib.programs import Json, OurDriver, Sidecar, connects
from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from sidecar.failover.brakes import share
from sidecar.failover.door_io import SOCKET
from sidecar.failover.look_io import attachment_name
from sidecar.model import names
from tests.harness.cluster import CLAIMS, EVENTS, HOME, LEASES, NODES, PODS, ROLE, VOLUMES, late
from tests.harness.drains import EVENTS_OF_NODES, PARTS, STRATEGIC, SWIFT, Ground, component, stateful_set

ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
ACCOUNT, WEAK = "failing-over", "failing-to"
"""One with the rights of the component, and one that lacks some."""
ACT, OBSERVE = "--failover=Act", "--failover=Observe"
SURVIVOR, VICTIM = "n1", "n2"
SHARE = 60.0 * share(VICTIM, SURVIVOR)
"""Seconds by the sidecar's clock until it is this survivor's turn."""
BOOT, NEXT_BOOT = "7d1e5f0a", "0c9b44d2"


class Losing(Ground):
    """Where sidecars may fail over, and volumes are attached."""

    attaches = True
    accounts = (ACCOUNT, WEAK)

    @property
    def handle(self) -> str:
        return f"r-{self.namespace}"

    @property
    def lost(self) -> str:
        return names.of_driver(self.driver_name, names.STORAGE_LOST)

    @property
    def attachment(self) -> str:
        """Of the volume, on the victim."""
        return attachment_name(self.handle, self.driver_name, VICTIM)

    def use_on_victim(self) -> tuple[OurDriver, str]:
        """A set's pod runs on the victim, and its volume, which any node reaches, is attached there. The driver of the survivor, and the
        pod's uid."""
        there, here = self.driver(VICTIM), self.driver(SURVIVOR)
        self.node(VICTIM, there)
        mounted = {"volumesInUse": [f"kubernetes.io/csi/{self.driver_name}^{self.handle}"], "nodeInfo": _info(BOOT)}
        self.change(VICTIM, {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}})
        self.change(VICTIM, {"status": mounted}, status=True)
        self.create(CLAIMS, {"metadata": {"name": "data-db-0"}, "spec": {**_asked(here), "volumeName": self.handle}})
        csi = {"driver": self.driver_name, "volumeHandle": self.handle}
        ref = {"namespace": self.namespace, "name": "data-db-0"}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": late(here),
            "csi": csi,
            "claimRef": ref,
        }
        self.create(VOLUMES, {"metadata": {"name": self.handle}, "spec": spec | {"persistentVolumeReclaimPolicy": "Retain"}})
        self.bound("data-db-0")
        self.create("/apis/apps/v1/namespaces/{namespace}/statefulsets", stateful_set("db", here, 1))
        until(lambda: self.phase(PODS, "db-0") == "Running", "db-0 runs")
        until(lambda: self.get(ATTACHMENTS, self.attachment), "Kubernetes attaches the volume, by the name that we expect")
        self.request("PATCH", f"{ATTACHMENTS}/{self.attachment}/status", {"status": {"attached": True}}, content_type=STRATEGIC)
        self.node(SURVIVOR, here)
        self.change(SURVIVOR, {"status": {"nodeInfo": _info("5a5a")}}, status=True)
        return here, str(self.get(PODS, "db-0")["metadata"]["uid"])

    def die(self) -> None:
        """Nobody speaks for the victim any more, and it counts as not Ready at once."""
        self.change(VICTIM, {"metadata": {"labels": {KWOK_LABEL: None}}})
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        self.change(VICTIM, {"status": {"conditions": [ready]}}, status=True)

    def come_back(self) -> None:
        """After a boot, with no volume mounted."""
        self.change(VICTIM, {"status": {"nodeInfo": _info(NEXT_BOOT), "volumesInUse": None}}, status=True)
        self.change(VICTIM, {"metadata": {"labels": {KWOK_LABEL: "fake"}}})

    def say_powered_off(self, boot: str = BOOT) -> None:
        self.change(VICTIM, {"metadata": {"labels": {names.POWERED_OFF: boot}}})

    def taint_of_victim(self) -> str:
        return next((one.get("value", "") for one in self.get(NODES, VICTIM)["spec"].get("taints", ()) if one["key"] == self.lost), "")

    def is_replaced(self, uid: str) -> bool:
        pod = self.get(PODS, "db-0")
        return pod["metadata"]["uid"] != uid and (pod.get("status") or {}).get("phase") == "Running"

    def since(self) -> dict[str, str]:
        """The moment from which on `deleted` is to tell, by collection."""
        return {path: self.revision(path) for path in (PODS, ATTACHMENTS, NODES)}

    def deleted(self, path: str, since: dict[str, str]) -> list[str]:
        """The uids of those of this test that were, in that order."""
        gone = [change["object"] for change in self.history(path, since[path]) if change["type"] == "DELETED"]
        return [one["metadata"]["uid"] for one in gone if path != ATTACHMENTS or one["spec"]["attacher"] == self.driver_name]

    def taintings(self, since: dict[str, str]) -> list[str]:
        """What the victim's taint became, one after the other."""
        nodes = [one["object"] for one in self.history(NODES, since[NODES]) if one["object"]["metadata"]["name"] == VICTIM]
        values = [next((t.get("value", "") for t in one["spec"].get("taints", ()) if t["key"] == self.lost), "") for one in nodes]
        return [value for value, before in zip(values, ["", *values], strict=False) if value != before]

    def reasons(self) -> set[str]:
        """Of all events that fail-over has told of this test's objects."""
        told = [*self.items(EVENTS), *(one for one in self.items(EVENTS_OF_NODES) if self.names_it(one))]
        return {one["reason"] for one in told} & OUR_REASONS

    def told_of_pod(self) -> list[str]:
        """What keeps it where it is."""
        return [one["message"] for one in self.events("db-0") if one["reason"] == names.FAILOVER_BLOCKED]

    def told_of_refusal(self) -> list[str]:
        told = [one for one in (*self.items(EVENTS), *self.items(EVENTS_OF_NODES)) if one["reason"] == names.FAILOVER_BLOCKED]
        return [one["message"] for one in told if "forbidden" in one["message"].lower() and self.namespace in json.dumps(one)]

    def names_it(self, event: Json) -> bool:
        about = event["involvedObject"]
        return about["name"] == self.attachment or str(about.get("uid")) == str(self.get(NODES, VICTIM)["metadata"]["uid"])

    def record(self) -> Json:
        """What the sidecars have counted."""
        notes = self.notes(LEASES, names.failover(self.driver_name))
        return dict(json.loads(notes.get(names.FAILOVER_RECORD) or "{}"))


OUR_REASONS = {names.STORAGE_LOST_HERE, names.POD_FAILED_OVER, names.VOLUME_DETACHED, names.FAILOVER_BLOCKED, names.STORAGE_BACK}
DONE = {names.STORAGE_LOST_HERE, names.POD_FAILED_OVER, names.VOLUME_DETACHED}


def _info(boot: str) -> Json:
    """All of it is required."""
    rest = ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion")
    return {"bootID": boot, "operatingSystem": "linux", "architecture": "amd64", **dict.fromkeys(rest, "")}


def _asked(driver: OurDriver) -> Json:
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": late(driver), "resources": {"requests": {"storage": "1Gi"}}}


def granted(plane: ControlPlane, account: str, *, without: Sequence[tuple[str, str]] = ()) -> Path:
    """A kubeconfig with upstream's rights and those of the components, but for these verbs on these resources."""
    objects = [item for item in yaml.safe_load_all(f"{ROLE.read_text()}---\n{component(*PARTS, 'failover')}") if item]
    for item in objects:
        if item["kind"] == "ServiceAccount":
            item["metadata"]["name"] = account
        elif item["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            item["metadata"]["name"] += f"-{account}"
        if item["kind"] == "ClusterRole":
            item["rules"] = [rule for rule in (_less(rule, without) for rule in item["rules"]) if rule["verbs"]]
        elif item["kind"] == "ClusterRoleBinding":
            item["roleRef"]["name"] += f"-{account}"
            item["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": HOME}]
    cluster_wide = [item for item in objects if item["kind"] not in ("Role", "RoleBinding")]
    plane.apply(yaml.safe_dump_all(cluster_wide))
    return plane.kubeconfig_for(namespace=HOME, service_account=account)


def _less(rule: Json, without: Sequence[tuple[str, str]]) -> Json:
    taken = {verb for verb, resource in without if resource in rule.get("resources", ())}
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb not in taken]}


@pytest.fixture(scope="module")
def failing_over(plane: ControlPlane, drainer: Path) -> Path:
    return granted(plane, ACCOUNT)


@pytest.fixture
def losing(plane: ControlPlane, failing_over: Path, tmp_path: Path) -> Iterator[Losing]:
    mine = Losing(plane, tmp_path, role=failing_over)
    mine.begin()
    try:
        yield mine
    finally:
        mine.clean()
        for name in mine.names(ATTACHMENTS):
            mine.delete(ATTACHMENTS, name)


def test_what_somebody_says_is_powered_off_is_replaced_detached_and_taken_back(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    with here, losing.judge(here, ACT) as sidecar:
        sidecar.until_ready()
        losing.die()
        since, attached = losing.since(), losing.get(ATTACHMENTS, losing.attachment)["metadata"]["uid"]
        losing.say_powered_off()
        until(lambda: losing.is_replaced(uid), "the pod runs again")
        until(lambda: losing.taint_of_victim() == f"powered-off-{BOOT}", "the victim takes no volumes")
        until(lambda: losing.deleted(ATTACHMENTS, since), "its volume is detached")
        assert losing.get(PODS, "db-0")["spec"]["nodeName"] == SURVIVOR
        assert (losing.deleted(PODS, since), losing.deleted(ATTACHMENTS, since)) == ([uid], [attached])
        until(lambda: losing.reasons() == DONE, lambda: f"it is told: {losing.reasons()}")
        assert set(losing.record()["victims"]) == {VICTIM} and len(losing.record()["pods"]) == 1
    there = losing.driver(VICTIM)
    with there, losing.judge(there, ACT) as own:
        own.until_ready()
        losing.come_back()
        until(lambda: not losing.taint_of_victim(), "after a boot its own sidecar takes the taint off")
        until(lambda: names.STORAGE_BACK in losing.reasons(), "that is told")


def test_a_label_that_names_another_boot_permits_nothing(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    with here, losing.judge(here, ACT) as sidecar:
        sidecar.until_ready()
        losing.die()
        losing.say_powered_off(NEXT_BOOT)
        untouched(losing, sidecar, uid)


def test_a_node_that_is_ready_is_left_alone_whatever_the_label_says(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    with here, losing.judge(here, ACT) as sidecar:
        sidecar.until_ready()
        losing.say_powered_off()
        untouched(losing, sidecar, uid)


def test_who_observes_tells_what_would_be_next_and_writes_nothing_else(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    with here, losing.judge(here, OBSERVE) as sidecar:
        sidecar.until_ready()
        losing.die()
        losing.say_powered_off()
        told = until(losing.told_of_pod, "it is told")
        assert "only observed: Taint would be next" in told[0]
        untouched(losing, sidecar, uid, told=1)
        assert not losing.exists(LEASES, names.failover(losing.driver_name))


def untouched(losing: Losing, sidecar: Sidecar, uid: str, *, told: int = 0) -> None:
    """For longer than the sidecar waits before it acts on a label."""
    since = losing.since()
    time.sleep(SHARE / SWIFT + 6.0)
    assert sidecar.is_running() and losing.get(PODS, "db-0")["metadata"]["uid"] == uid
    assert [losing.deleted(path, since) for path in (PODS, ATTACHMENTS)] == [[], []]
    assert (losing.taintings(since), len(losing.told_of_pod())) == ([], told)


# --- the process dies -----------------------------------------------------------------------------------------------------------


def test_f43_killed_after_each_write_it_goes_on_where_it_was_and_does_nothing_twice(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    attached = losing.get(ATTACHMENTS, losing.attachment)["metadata"]["uid"]
    losing.die()
    losing.say_powered_off()
    since = losing.since()
    written = (
        losing.record,  # counted, and perhaps not done
        losing.taint_of_victim,
        lambda: uid in losing.deleted(PODS, since),
        lambda: losing.deleted(ATTACHMENTS, since),
    )
    with here:
        for done in written:
            with losing.judge(here, ACT) as sidecar:
                until(done, "the next write", pause=0.01)
                sidecar.kill()
        with losing.judge(here, ACT) as sidecar:
            sidecar.until_ready()
            until(lambda: losing.is_replaced(uid), "the pod runs again")
            time.sleep(SHARE / SWIFT + 2.0)
    assert (losing.deleted(PODS, since), losing.deleted(ATTACHMENTS, since)) == ([uid], [attached])
    assert losing.taintings(since) == [f"powered-off-{BOOT}"]
    assert len(losing.record()["pods"]) <= 1 and [len(times) for times in losing.record()["claims"].values()] == [1]


# --- a right is missing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks", [("delete", "pods"), ("delete", "volumeattachments")], ids=" ".join)
def test_f54_a_right_that_is_missing_is_told_once_and_once_given_the_act_is_done(losing: Losing, lacks: tuple[str, str]) -> None:
    here, uid = losing.use_on_victim()
    role = granted(losing.plane, WEAK, without=[lacks])
    with here, losing.judge(here, ACT, kubeconfig=role) as sidecar:
        sidecar.until_ready()
        losing.die()
        since = losing.since()
        losing.say_powered_off()
        until(losing.told_of_refusal, "the refusal is told")
        time.sleep(5.0)  # several looks
        assert len(losing.told_of_refusal()) == 1 and not sidecar.records("EF")
        assert bool(losing.deleted(PODS, since)) is (lacks[1] != "pods") and not losing.deleted(ATTACHMENTS, since)
        granted(losing.plane, WEAK)
        until(lambda: losing.is_replaced(uid) and losing.deleted(ATTACHMENTS, since), "it is done after all")
    assert losing.deleted(PODS, since) == [uid]


# --- replicated storage -----------------------------------------------------------------------------------------------------------


@contextmanager
def drbd(losing: Losing, here: OurDriver) -> Iterator[Path]:
    """A resource on both nodes, with a third that votes, and its reader on the survivor. The file of the storage's state."""
    state, storage = losing.folder / "drbd", Storage(time.monotonic)
    storage.add(losing.handle, disks=(SURVIVOR, VICTIM), diskless=("n3",))
    assert storage.open(VICTIM, losing.handle)
    drbdsetup.create(state, storage)
    programs, socket = losing.folder / "bin", here.socket.parent / SOCKET
    programs.mkdir()
    drbdsetup.install(programs, state, SURVIVOR)
    line = [sys.executable, "-m", "sidecar", "read-drbd", f"--listen={socket}"]
    path = f"{programs}:{os.environ['PATH']}"
    with Process("reader", line, losing.folder, environ={"PATH": path}):
        until(lambda: connects(socket), "the reader serves")
        yield state


def test_f01_what_drbd_excludes_is_replaced_and_detached(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    with here, drbd(losing, here) as state, losing.judge(here, ACT, speed=1.0) as sidecar:
        sidecar.until_ready()
        since, attached = losing.since(), losing.get(ATTACHMENTS, losing.attachment)["metadata"]["uid"]
        losing.die()
        time.sleep(8.0)
        assert losing.deleted(PODS, since) == [], "a Node that is not Ready proves nothing"
        with drbdsetup.held(state) as held:
            held.storage.crash(VICTIM)
        began = time.monotonic()
        until(lambda: losing.is_replaced(uid), "the pod runs again", seconds=30.0)
        assert time.monotonic() - began > 11.0, "the storage notices after 6 s, and 5 more are waited for"
        until(lambda: losing.deleted(ATTACHMENTS, since), "its volume is detached")
        assert (losing.deleted(PODS, since), losing.deleted(ATTACHMENTS, since)) == ([uid], [attached])
        assert losing.taint_of_victim() == "peers-took-over"
        until(lambda: losing.reasons() == DONE, lambda: f"it is told: {losing.reasons()}")


def test_f03_of_a_ready_node_whose_storage_is_lost_the_pod_is_evicted_and_kubernetes_detaches(losing: Losing) -> None:
    here, uid = losing.use_on_victim()
    with here, drbd(losing, here) as state, losing.judge(here, ACT, speed=1.0) as sidecar:
        sidecar.until_ready()
        since = losing.since()
        with drbdsetup.held(state) as held:
            held.storage.crash(VICTIM)
        until(lambda: losing.is_replaced(uid), "the pod runs again", seconds=30.0)
        evicted = "csi_node_sidecar_failover_acts_total"
        assert sidecar.metric(evicted, act="Evict") == 1 and sidecar.metric(evicted) == 1
        assert losing.deleted(ATTACHMENTS, since) == [] and losing.taintings(since) == []
