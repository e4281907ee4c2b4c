"""Runs one program: a fresh control plane, the drivers, the program in every setting, all cases at once; returns the results.

The binder, the protection of volumes and claims, and the API server are the real ones. A claim is given to the node by hand, as a
scheduler would. Both programs get objects of the same names on a plane of their own, so that uids and times are all that must differ.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hack.lib.command import Failure, say
from hack.lib.control_plane import ApiError, ControlPlane, binaries, until
from hack.lib.programs import PEER, Driver, Peer, Sidecar, all_of, provisioner
from hack.parities import crds
from hack.parities.cases import CLASS_BETA, NAMESPACE, OTHER_NAMESPACE, SELECTED_NODE, SETTINGS, Case, Json, Setting, Snapshot
from hack.parities.driver import OWN_NODE

CLAIMS, SECRETS, VOLUMES = (
    f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
    "/api/v1/namespaces/{}/secrets",
    "/api/v1/persistentvolumes",
)
CLASSES, ATTRIBUTES, ATTACHMENTS = (
    f"/apis/storage.k8s.io/v1/{kind}" for kind in ("storageclasses", "volumeattributesclasses", "volumeattachments")
)
SNAPSHOTS, CONTENTS = (
    f"/apis/snapshot.storage.k8s.io/v1/{kind}" for kind in (f"namespaces/{NAMESPACE}/volumesnapshots", "volumesnapshotcontents")
)
DELETION_NOTES = tuple(f"volume.kubernetes.io/provisioner-deletion-secret-{part}" for part in ("name", "namespace"))
# Of volumes, by the words of `Case.between`.
CHANGES: Mapping[str, Json] = {
    "delete": {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    "retain": {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
    "finalizer goes": {"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}},
    "provisioned-by goes": {"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": None}}},
    "notes go": {"metadata": {"annotations": dict.fromkeys(DELETION_NOTES)}},
    "one note goes": {"metadata": {"annotations": {DELETION_NOTES[0]: None}}},
    "one note emptied": {"metadata": {"annotations": {DELETION_NOTES[0]: ""}}},
}
HOLD = "parity.csi-node-sidecar.io/hold"
FLAGS = (
    *("--kube-api-qps=500", "--kube-api-burst=1000", "--retry-interval-start=1s", "--retry-interval-max=4s"),
    *("--node-deployment-base-delay=300ms", "--node-deployment-max-delay=1s"),
)
SECRETS_OF_ALL: Mapping[str, Json] = {
    "secret-a": {"stringData": {"username": "alice", "password": "not a real one"}},
    "secret-b": {"stringData": {"token": "b"}},
    "secret-empty": {},
    "secret-binary": {"data": {"raw": "//79", "text": "YQ=="}},
}
# What upstream's sample has in comments for those who need it, and what its sample lacks for VolumeAttributesClasses.
MORE_RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: parity}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get, list]}
- {apiGroups: [storage.k8s.io], resources: [volumeattributesclasses], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: parity}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: parity}
subjects: [{kind: ServiceAccount, name: csi-provisioner, namespace: default}]
"""
# A retry comes after one second, or two after that: what has not moved for longer has settled.
QUIET, QUIET_AFTER_DELETION = 3.5, 4.5
SETTLE_LIMIT = 240.0
POLL, SECONDS_TO_BE_HEARD = 0.4, 1.0


@dataclass(slots=True)
class Seen:
    """Everything there is to see at one moment, as the server and the drivers tell it."""

    claims: list[Json]
    volumes: list[Json]
    events: list[Json]
    snapshots: list[Json]
    calls: dict[str, list[Json]]
    """By setting."""

    def signature(self) -> str:
        """Changes when something happens, but not when a failing call fails again."""
        state = [
            (item["metadata"]["name"], item.get("status", {}).get("phase"), *map(item["metadata"].get, ("finalizers", "annotations")))
            for item in (*self.claims, *self.volumes)
        ]
        told = sorted({(name_of(item), item["reason"], item["message"]) for item in self.events})
        done = sorted({json.dumps([call["method"], call["request"]], sort_keys=True) for calls in self.calls.values() for call in calls})
        return json.dumps([state, told, done])


@dataclass(slots=True)
class Play:
    """What one program did."""

    created: Seen
    changed: Seen
    """After what `Case.between` tells."""
    deleted: Seen
    uids: dict[str, str]
    """Of claims and snapshots, by kind and name."""
    unsettled: set[str]
    """Cases of which nothing came in time."""


def play(program: str, cases: Sequence[Case], work: Path) -> Play:
    work.mkdir()
    bin_dir = binaries("core", PEER)
    with ControlPlane(bin_dir, work / "plane", components=("controller-manager",)) as plane:
        for manifest in (MORE_RIGHTS, *(file.read_text() for file in crds.manifests())):
            plane.apply(manifest)
        role = plane.upstream_role()
        for path in (SNAPSHOTS, CONTENTS):
            until(partial(plane.serves, path), f"the API server serves {path}")
        drivers, processes = list[ParityDriver](), list[Sidecar | Peer]()
        for setting in (setting for setting in SETTINGS if any(case.setting == setting.name for case in cases)):
            folder = work / setting.name
            folder.mkdir()
            driver = ParityDriver(setting, folder)
            where: Json = {"node": OWN_NODE, "address": driver.socket, "kubeconfig": role}
            drivers.append(driver)
            processes.append(provisioner(program, folder, bin_dir=bin_dir, args=(*FLAGS, *setting.flags), **where))
        with all_of(drivers), all_of(processes):
            for process in processes:
                process.until(process.ready, f"{process.log} tells that it works")
            say(f"{program}: {len(cases)} cases in {len(processes)} settings")
            played = Stage(plane, work, cases).run()
            for process in processes:
                process.until(process.ready, f"{process.log} tells that it still works")
        return played


class ParityDriver(Driver):
    """As it is told by its setting."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        self.socket = folder / "csi.sock"
        told: Json = {"endpoint": str(self.socket), "name": setting.driver, "calls": str(folder / "calls")}
        told |= {"segments": dict(setting.segments), "capabilities": setting.capabilities}
        super().__init__("driver", [sys.executable, str(Path(__file__).with_name("driver.py")), json.dumps(told)], folder)


class Stage:
    """The plane with everything running, and the cases that are played on it."""

    def __init__(self, plane: ControlPlane, work: Path, cases: Sequence[Case]) -> None:
        self.plane, self.work, self.cases = plane, work, cases
        self._uids: dict[str, str] = {}
        self._left: set[str] = set()

    def run(self) -> Play:
        self._prepare()
        for case in self.cases:
            self._create_claim(case)
        unsettled = self._open(self._until_quiet(QUIET, self._is_over))
        if unsettled:
            say(f"nothing came of {', '.join(sorted(unsettled))}")
        created = self._look()
        for case in self.cases:
            for word in case.between:
                self._intervene(case, word)
        changed = self._until_quiet(QUIET) if any(case.between for case in self.cases) else created
        self._delete()
        return Play(created, changed, self._look(), self._uids, unsettled)

    def _look(self) -> Seen:
        files = {setting.name: self.work / setting.name / "calls" for setting in SETTINGS}
        calls = {
            name: [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [] for name, file in files.items()
        }
        claims, volumes, events, snapshots = map(self._items, (CLAIMS, VOLUMES, "/api/v1/events", SNAPSHOTS))
        return Seen(claims, volumes, events, snapshots, calls)

    # --- before the claims --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._post("/api/v1/namespaces", {"metadata": {"name": OTHER_NAMESPACE}})
        for name, body in SECRETS_OF_ALL.items():
            self._post(SECRETS.format(NAMESPACE), {"metadata": {"name": name}, **body})
        self._post(SECRETS.format(OTHER_NAMESPACE), {"metadata": {"name": "secret-a"}, "stringData": {"other": "one"}})
        for case in self.cases:
            names = [] if case.without_class else [case.id]
            for name in [*names, *([source_of(case)] if case.source and case.source.own_class else [])]:
                self._post(CLASSES, _class(case, name))
            if case.attributes is not None:
                self._post(ATTRIBUTES, {"metadata": {"name": case.id}, "driverName": case.driver, **case.attributes})
            for suffix in case.secrets:
                self._post(SECRETS.format(NAMESPACE), {"metadata": {"name": f"{case.id}{suffix}"}, "stringData": {"of": case.id}})
        # Classes and claims come by different watches, in any order: which one a program hears of first is not what is compared here.
        time.sleep(SECONDS_TO_BE_HEARD)
        for case in self.cases:
            if case.source:
                node = {SELECTED_NODE: OWN_NODE} if case.source.bound else {}
                spec = {"storageClassName": source_of(case) if case.source.own_class else case.id, **case.source.spec}
                self._post(CLAIMS, _claim(source_of(case), spec, annotations=node))
            if case.snapshot:
                self._prepare_snapshot(case, case.snapshot)
        wanted = {source_of(case) for case in self.cases if case.source and case.source.bound}
        until(lambda: wanted <= _bound(self._items(CLAIMS)), "the sources of the clones are bound", seconds=SETTLE_LIMIT)

    def _prepare_snapshot(self, case: Case, wanted: Snapshot) -> None:
        """As a snapshot controller would have left it."""
        name, content = source_of(case), f"content-{case.id}"
        api = {"apiVersion": "snapshot.storage.k8s.io/v1"}
        meta: Json = {"name": name, "finalizers": [HOLD] if wanted.deleting else []}
        spec: Json = {"source": {"volumeSnapshotContentName": content}}
        uid = self._post(SNAPSHOTS, {**api, "kind": "VolumeSnapshot", "metadata": meta, "spec": spec})["metadata"]["uid"]
        bound = {"boundVolumeSnapshotContentName": content} if wanted.bound else {}
        size = {"restoreSize": wanted.size} if wanted.size else {}
        self._patch(SNAPSHOTS, f"{name}/status", {"status": {"readyToUse": wanted.ready, **bound, **size}})
        if wanted.content:
            spec = {
                "deletionPolicy": "Retain",
                "driver": wanted.driver or case.driver,
                "source": {"snapshotHandle": wanted.handle or "snap-1"},
                "volumeSnapshotRef": {"namespace": NAMESPACE, "name": name, "uid": uid if wanted.back_reference else "0"},
                **({"sourceVolumeMode": wanted.mode} if wanted.mode else {}),
            }
            notes = {"snapshot.storage.kubernetes.io/allow-volume-mode-change": "true"} if wanted.may_change_mode else {}
            meta = {"name": content, "annotations": notes}
            self._post(CONTENTS, {**api, "kind": "VolumeSnapshotContent", "metadata": meta, "spec": spec})
            handle = {"snapshotHandle": wanted.handle} if wanted.handle else {}
            self._patch(CONTENTS, f"{content}/status", {"status": {"readyToUse": wanted.ready, **handle}})
        if wanted.deleting:
            self._delete_one(SNAPSHOTS, name)

    # --- the claims ---------------------------------------------------------------------------------------------------

    def _create_claim(self, case: Case) -> None:
        body = claim_of(case)
        if case.deleting:
            del body["metadata"]["annotations"][SELECTED_NODE]
            body["metadata"]["finalizers"] = [HOLD]
        self._post(CLAIMS, body)
        if case.deleting:
            self._delete_one(CLAIMS, case.id)
            self._patch(CLAIMS, case.id, {"metadata": {"annotations": {SELECTED_NODE: OWN_NODE}}})

    def _until_quiet(self, seconds: float, is_over: Callable[[Seen], bool] = lambda _: True) -> Seen:
        """Nothing has changed for so long, or it lasts too long."""
        deadline = time.monotonic() + SETTLE_LIMIT
        last, since = "", time.monotonic()
        while True:
            seen = self._look()
            over, signature, now = is_over(seen), seen.signature(), time.monotonic()
            if signature != last:
                last, since = signature, now
            if (over and now - since >= seconds) or now > deadline:
                return seen
            time.sleep(POLL)

    def _is_over(self, seen: Seen) -> bool:
        """Each case has a result. Who leaves early does so when its first attempt has failed."""
        failed = {name_of(event) for event in seen.events if event["reason"] == "ProvisioningFailed"}
        for case in self.cases:
            if case.leaves_early and case.id not in self._left and case.id in failed:
                self._left.add(case.id)
                self._delete_one(CLAIMS, case.id)
        return not self._open(seen)

    def _open(self, seen: Seen) -> set[str]:
        ends = ("ProvisioningSucceeded", "ProvisioningFailed")
        told = [event for event in seen.events if is_of_the_program(event)]
        ended = {name_of(event) for event in told if event["reason"] in ends or "populator" in event["message"]}
        return {case.id for case in self.cases if not case.silent} - _bound(seen.claims) - ended

    def _intervene(self, case: Case, word: str) -> None:
        volume = self.plane.request("GET", f"{CLAIMS}/{case.id}")["spec"]["volumeName"]
        secrets = SECRETS.format(NAMESPACE)
        goes = {"volume goes": (VOLUMES, volume), "class goes": (CLASSES, case.id), "secret goes": (secrets, case.id)}
        if word == "attached":
            spec = {"attacher": case.driver, "nodeName": OWN_NODE, "source": {"persistentVolumeName": volume}}
            self._post(ATTACHMENTS, {"metadata": {"name": case.id}, "spec": spec})
        elif word in goes:
            self._delete_one(*goes[word])
        else:
            self._patch(VOLUMES, volume, CHANGES[word])

    def _delete(self) -> None:
        """Sources that go first, then the claims, then the other sources."""
        sources = [(source_of(case), case.source.goes_first) for case in self.cases if case.source]
        for name in (name for name, goes_first in sources if goes_first):
            self._delete_one(CLAIMS, name)
        self._until_quiet(1.0)
        for case in self.cases:
            self._delete_one(CLAIMS, case.id)
            if case.deleting:
                rest = self.plane.request("GET", f"{CLAIMS}/{case.id}")["metadata"].get("finalizers", [])
                self._patch(CLAIMS, case.id, {"metadata": {"finalizers": [item for item in rest if item != HOLD]}})
        self._until_quiet(QUIET_AFTER_DELETION)
        for name in (name for name, goes_first in sources if not goes_first):
            self._delete_one(CLAIMS, name)
        self._until_quiet(QUIET_AFTER_DELETION)

    # --- requests -------------------------------------------------------------------------------------------------------

    def _items(self, path: str) -> list[Json]:
        found: list[Json] = self.plane.request("GET", path)["items"]
        return found

    def _post(self, path: str, body: Json) -> Json:
        try:
            made = self.plane.request("POST", path, body)
        except ApiError as error:
            # A case that the API server does not take compares nothing.
            raise Failure(f"{path} {body['metadata']['name']}: {error}") from error
        if path in (CLAIMS, SNAPSHOTS):
            self._uids[f"{'claim' if path == CLAIMS else 'snapshot'} {body['metadata']['name']}"] = made["metadata"]["uid"]
        return made

    def _patch(self, path: str, name: str, change: Json) -> None:
        self.plane.request("PATCH", f"{path}/{name}", change, content_type="application/merge-patch+json")

    def _delete_one(self, path: str, name: str) -> None:
        try:
            self.plane.request("DELETE", f"{path}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise


# --- texts ------------------------------------------------------------------------------------------------------------


def source_of(case: Case) -> str:
    return f"{case.id}-source"


def name_of(event: Json) -> str:
    """Of the object that the event is about; empty: it names none, as the API server allows."""
    return str(event["involvedObject"].get("name", ""))


def is_of_the_program(event: Json) -> bool:
    component = str(event.get("source", {}).get("component") or event.get("reportingComponent", ""))
    return not component.endswith("-controller")


def _bound(claims: Sequence[Json]) -> set[str]:
    return {item["metadata"]["name"] for item in claims if item["status"].get("phase") == "Bound"}


def claim_of(case: Case) -> Json:
    by_hand = case.class_.get("volumeBindingMode") != "Immediate"
    notes: dict[str, str | None] = {**({SELECTED_NODE: OWN_NODE} if by_hand else {}), **case.annotations}
    if CLASS_BETA in notes:
        notes[CLASS_BETA] = case.id
    spec = _filled_in({"storageClassName": case.id, **case.spec}, case.id)
    return _claim(case.id, spec, annotations={key: value for key, value in notes.items() if value is not None}, labels=case.labels)


def _filled_in(value: Any, name: str) -> Any:
    """The names of a case are made of its own."""
    if isinstance(value, Mapping):
        return {key: _filled_in(item, name) for key, item in value.items() if item is not None}
    return value.replace("{}", name) if isinstance(value, str) else value


def _claim(name: str, spec: Mapping[str, Any], *, annotations: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Json:
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": name, "annotations": dict(annotations), "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**usual, **spec}}


def _class(case: Case, name: str) -> Json:
    """Each has a parameter of its own, by which a call that names no volume is told apart."""
    usual: Json = {"provisioner": case.driver, "volumeBindingMode": "WaitForFirstConsumer", **case.class_}
    meta = {"name": name, **usual.pop("metadata", {})}
    fields = {key: value for key, value in usual.items() if value is not None}
    return {"metadata": meta, "parameters": {"case": case.id, **case.parameters}, **fields}
