"""Runs one program: a fresh control plane, the drivers, the program in every setting, all cases at once; returns the results.

The binder, the protection of volumes and claims, and the API server are the real ones. A claim is given to the node by hand, as a
scheduler would. Both programs get objects of the same names on a plane of their own, so that uids and times are all that must differ.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hack.lib.control_plane import REPOSITORY, ApiError, ControlPlane, binaries, until
from hack.lib.programs import Peer, Process, Sidecar, connects
from hack.lib.progress import say
from hack.parities import crds
from hack.parities.cases import (
    CLASS_BETA,
    NAMESPACE,
    OTHER_NAMESPACE,
    SELECTED_NODE,
    SETTINGS,
    Case,
    Json,
    Setting,
    Snapshot,
)
from hack.parities.driver import OWN_NODE

OURS, PEER = "csi-node-sidecar", "csi-provisioner"
SERVICE_ACCOUNT = "csi-provisioner"
CLAIMS, SECRETS, EVENTS = (f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("persistentvolumeclaims", "secrets", "events"))
VOLUMES, ALL_EVENTS = "/api/v1/persistentvolumes", "/api/v1/events"
CLASSES, ATTRIBUTES = (f"/apis/storage.k8s.io/v1/{kind}" for kind in ("storageclasses", "volumeattributesclasses"))
SNAPSHOTS, CONTENTS = (
    f"/apis/snapshot.storage.k8s.io/v1/{kind}" for kind in (f"namespaces/{NAMESPACE}/volumesnapshots", "volumesnapshotcontents")
)
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
DELETION_NOTES = tuple(f"volume.kubernetes.io/provisioner-deletion-secret-{part}" for part in ("name", "namespace"))
MERGE_PATCH = "application/merge-patch+json"
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
SETTLE_LIMIT, START_LIMIT = 60.0, 60.0
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
        state = [(item["metadata"]["name"], item.get("status", {}).get("phase"), item["metadata"].get("finalizers"),
                  item["metadata"].get("annotations")) for item in (*self.claims, *self.volumes)]  # fmt: skip
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
    unsettled: frozenset[str]
    """Cases of which nothing came in time."""


def play(program: str, cases: Sequence[Case], work: Path) -> Play:
    work.mkdir()
    with _plane(cases, work) as (plane, bin_dir):
        role = plane.kubeconfig_for(namespace=NAMESPACE, service_account=SERVICE_ACCOUNT)
        used = [setting for setting in SETTINGS if any(case.setting == setting.name for case in cases)]
        with _running(program, used, work, bin_dir=bin_dir, role=role):
            stage = Stage(plane, work, cases)
            say(f"{program}: {len(cases)} cases in {len(used)} settings")
            return stage.run()


@contextmanager
def _plane(cases: Sequence[Case], work: Path) -> Iterator[tuple[ControlPlane, Path]]:
    bin_dir = binaries("core", PEER)
    with ControlPlane(bin_dir, work / "plane", components=("controller-manager",)) as plane:
        plane.apply((REPOSITORY / "tests" / "e2e" / "upstream-role.yaml").read_text())
        plane.apply(MORE_RIGHTS)
        for manifest in crds.manifests():
            plane.apply(manifest.read_text())
        for path in (SNAPSHOTS, CONTENTS):
            until(partial(plane.serves, path), f"the API server serves {path}", seconds=START_LIMIT)
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": OTHER_NAMESPACE}})
        yield plane, bin_dir


@contextmanager
def _running(program: str, settings: Iterable[Setting], work: Path, *, bin_dir: Path, role: Path) -> Iterator[None]:
    """The drivers, and the program beside each: in this order they start, and the other way round they stop."""
    with ExitStack() as stack:
        started: list[Process] = []
        for setting in settings:
            folder = work / setting.name
            folder.mkdir()
            driver = stack.enter_context(RecordingDriver(setting, folder))
            flags = (*FLAGS, *setting.flags)
            if program == OURS:
                started.append(Sidecar(folder, node=OWN_NODE, address=driver.socket, kubeconfig=role, args=flags))
            else:
                started.append(Peer(folder, binary=bin_dir / PEER, node=OWN_NODE, address=driver.socket, kubeconfig=role, args=flags))
            stack.enter_context(started[-1])
        for process in started:
            until(partial(_is_at_work, process), f"{process.log} tells that it works", seconds=START_LIMIT)
        yield
        for process in started:
            _check(process)


def _is_at_work(process: Process) -> bool:
    _check(process)
    return process.ready() if isinstance(process, Sidecar) else "Started provisioner controller" in process.output()


def _check(process: Process) -> None:
    if process.child.poll() is not None:
        raise SystemExit(f"hack/parity: {process.log} has ended; the end of it:\n{process.output()[-3000:]}")


class RecordingDriver(Process):
    """`parities.driver` as a process."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        self.socket = folder / "csi.sock"
        command = [
            *(sys.executable, str(Path(__file__).with_name("driver.py"))),
            *(f"--endpoint={self.socket}", f"--name={setting.driver}", f"--calls={calls_of(folder)}"),
            *(f"--topology={key}={value}" for key, value in setting.segments.items()),
            *(f"--capability={name}" for name in setting.capabilities),
        ]
        super().__init__("driver", command, folder)

    def start(self) -> RecordingDriver:
        super().start()
        until(lambda: connects(self.socket), f"{self.name} serves:\n{self.output()}", seconds=START_LIMIT)
        return self


def calls_of(folder: Path) -> Path:
    return folder / "calls"


class Stage:
    """The plane with everything running, and the cases that are played on it."""

    def __init__(self, plane: ControlPlane, work: Path, cases: Sequence[Case]) -> None:
        self.plane, self.work, self.cases = plane, work, cases
        self._uids: dict[str, str] = {}
        self._left: set[str] = set()

    def run(self) -> Play:
        self._prepare()
        self._wait_for_sources()
        for case in self.cases:
            self._create_claim(case)
        unsettled = self._settle()
        if unsettled:
            say(f"nothing came of {', '.join(sorted(unsettled))}")
        created = self.look()
        for case in self.cases:
            for word in case.between:
                self._intervene(case, word)
        changed = self._until_quiet(QUIET, lambda _: True) if any(case.between for case in self.cases) else created
        self._delete()
        return Play(created, changed, self.look(), dict(self._uids), frozenset(unsettled))

    def look(self) -> Seen:
        calls: dict[str, list[Json]] = {}
        for setting in SETTINGS:
            path = calls_of(self.work / setting.name)
            lines = path.read_text().splitlines() if path.exists() else []
            calls[setting.name] = [json.loads(line) for line in lines]
        return Seen(self._items(CLAIMS), self._items(VOLUMES), self._items(ALL_EVENTS), self._items(SNAPSHOTS), calls)

    # --- before the claims --------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for name, body in SECRETS_OF_ALL.items():
            self._post(SECRETS, {"metadata": {"name": name}, **body})
        self._post(SECRETS.replace(NAMESPACE, OTHER_NAMESPACE), {"metadata": {"name": "secret-a"}, "stringData": {"other": "one"}})
        for case in self.cases:
            if not case.without_class:
                self._post(CLASSES, _class(case, case.id))
            if case.source is not None and case.source.own_class:
                self._post(CLASSES, _class(case, source_of(case)))
            if case.attributes is not None:
                self._post(ATTRIBUTES, {"metadata": {"name": case.id}, "driverName": case.driver, **case.attributes})
            for suffix in case.secrets:
                self._post(SECRETS, {"metadata": {"name": f"{case.id}{suffix}"}, "stringData": {"of": case.id}})
        # Classes and claims come by different watches, in any order: which one a program hears of first is not what is compared here.
        time.sleep(SECONDS_TO_BE_HEARD)
        for case in self.cases:
            if case.source is not None:
                self._prepare_source(case)
            if case.snapshot is not None:
                self._prepare_snapshot(case, case.snapshot)

    def _prepare_source(self, case: Case) -> None:
        assert case.source is not None
        name, class_ = source_of(case), source_of(case) if case.source.own_class else case.id
        node = {SELECTED_NODE: OWN_NODE} if case.source.bound else {}
        body = _claim(name, {"storageClassName": class_, **case.source.spec}, annotations=node)
        self._uids[f"claim {name}"] = self._post(CLAIMS, body)["metadata"]["uid"]

    def _prepare_snapshot(self, case: Case, wanted: Snapshot) -> None:
        name, content = source_of(case), f"content-{case.id}"
        made = self._post(
            SNAPSHOTS,
            {
                **_snapshot_kind("VolumeSnapshot"),
                "metadata": {"name": name, "finalizers": [HOLD] if wanted.deleting else []},
                "spec": {"source": {"volumeSnapshotContentName": content}},
            },
        )
        uid = self._uids[f"snapshot {name}"] = made["metadata"]["uid"]
        status: Json = {"readyToUse": wanted.ready}
        if wanted.bound:
            status["boundVolumeSnapshotContentName"] = content
        if wanted.size:
            status["restoreSize"] = wanted.size
        self._patch(SNAPSHOTS, f"{name}/status", {"status": status})
        if wanted.content:
            self._prepare_content(case, wanted, content, uid)
        if wanted.deleting:
            self.plane.request("DELETE", f"{SNAPSHOTS}/{name}")

    def _prepare_content(self, case: Case, wanted: Snapshot, content: str, uid: str) -> None:
        reference = {"namespace": NAMESPACE, "name": source_of(case), "uid": uid if wanted.back_reference else "0"}
        spec: Json = {
            "deletionPolicy": "Retain",
            "driver": wanted.driver or case.driver,
            "source": {"snapshotHandle": wanted.handle or "snap-1"},
            "volumeSnapshotRef": reference,
        }
        if wanted.mode:
            spec["sourceVolumeMode"] = wanted.mode
        notes = {"snapshot.storage.kubernetes.io/allow-volume-mode-change": "true"} if wanted.may_change_mode else {}
        self._post(CONTENTS, {**_snapshot_kind("VolumeSnapshotContent"), "metadata": {"name": content, "annotations": notes}, "spec": spec})
        status = {"readyToUse": wanted.ready, **({"snapshotHandle": wanted.handle} if wanted.handle else {})}
        self._patch(CONTENTS, f"{content}/status", {"status": status})

    def _wait_for_sources(self) -> None:
        wanted = {source_of(case) for case in self.cases if case.source is not None and case.source.bound}

        def are_bound() -> bool:
            return wanted <= {item["metadata"]["name"] for item in self._items(CLAIMS) if item["status"].get("phase") == "Bound"}

        until(are_bound, "the sources of the clones are bound", seconds=SETTLE_LIMIT)

    # --- the claims ---------------------------------------------------------------------------------------------------

    def _create_claim(self, case: Case) -> None:
        body = claim_of(case)
        if case.deleting:
            del body["metadata"]["annotations"][SELECTED_NODE]
            body["metadata"]["finalizers"] = [HOLD]
        self._uids[f"claim {case.id}"] = self._post(CLAIMS, body)["metadata"]["uid"]
        if case.deleting:
            self.plane.request("DELETE", f"{CLAIMS}/{case.id}")
            self._patch(CLAIMS, case.id, {"metadata": {"annotations": {SELECTED_NODE: OWN_NODE}}})

    def _settle(self) -> set[str]:
        """Waits until each case has a result and nothing changes any more. Returns the cases that had none in time."""

        def is_over(seen: Seen) -> bool:
            self._send_away_who_leaves_early(seen)
            return not self._open(seen)

        return self._open(self._until_quiet(QUIET, is_over))

    def _until_quiet(self, seconds: float, is_over: Callable[[Seen], bool]) -> Seen:
        deadline = time.monotonic() + SETTLE_LIMIT
        last, since = "", time.monotonic()
        while True:
            seen = self.look()
            over, signature, now = is_over(seen), seen.signature(), time.monotonic()
            if signature != last:
                last, since = signature, now
            if (over and now - since >= seconds) or now > deadline:
                return seen
            time.sleep(POLL)

    def _open(self, seen: Seen) -> set[str]:
        bound = {item["metadata"]["name"] for item in seen.claims if item["status"].get("phase") == "Bound"}
        told = {
            name_of(event)
            for event in seen.events
            if is_of_the_program(event)
            and (event["reason"] in ("ProvisioningSucceeded", "ProvisioningFailed") or "populator" in event["message"])
        }
        return {case.id for case in self.cases if not case.silent} - bound - told

    def _send_away_who_leaves_early(self, seen: Seen) -> None:
        failed = {name_of(event) for event in seen.events if event["reason"] == "ProvisioningFailed"}
        for case in self.cases:
            if case.leaves_early and case.id not in self._left and case.id in failed:
                self._left.add(case.id)
                self._delete_one(CLAIMS, case.id)

    # --- in between -----------------------------------------------------------------------------------------------------

    def _intervene(self, case: Case, word: str) -> None:
        volume = self.plane.request("GET", f"{CLAIMS}/{case.id}")["spec"]["volumeName"]
        notes: dict[str, Json] = {
            "provisioned-by goes": {"pv.kubernetes.io/provisioned-by": None},
            "notes go": dict.fromkeys(DELETION_NOTES),
            "one note goes": {DELETION_NOTES[0]: None},
            "one note emptied": {DELETION_NOTES[0]: ""},
        }
        goes = {"volume goes": (VOLUMES, volume), "class goes": (CLASSES, case.id), "secret goes": (SECRETS, case.id)}
        if word in ("delete", "retain"):
            self._patch(VOLUMES, volume, {"spec": {"persistentVolumeReclaimPolicy": word.capitalize()}})
        elif word == "finalizer goes":
            self._patch(VOLUMES, volume, {"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}})
        elif word == "attached":
            spec = {"attacher": case.driver, "nodeName": OWN_NODE, "source": {"persistentVolumeName": volume}}
            self._post(ATTACHMENTS, {"metadata": {"name": case.id}, "spec": spec})
        elif word in goes:
            self._delete_one(*goes[word])
        else:
            self._patch(VOLUMES, volume, {"metadata": {"annotations": notes[word]}})

    # --- deletion ---------------------------------------------------------------------------------------------

    def _delete(self) -> None:
        first = [source_of(case) for case in self.cases if case.source is not None and case.source.goes_first]
        for name in first:
            self._delete_one(CLAIMS, name)
        self._until_quiet(1.0, lambda _: True)
        for case in self.cases:
            self._delete_one(CLAIMS, case.id)
            if case.deleting:
                rest = self.plane.request("GET", f"{CLAIMS}/{case.id}")["metadata"].get("finalizers", [])
                self._patch(CLAIMS, case.id, {"metadata": {"finalizers": [item for item in rest if item != HOLD]}})
        self._until_quiet(QUIET_AFTER_DELETION, lambda _: True)
        for case in self.cases:
            if case.source is not None and not case.source.goes_first:
                self._delete_one(CLAIMS, source_of(case))
        self._until_quiet(QUIET_AFTER_DELETION, lambda _: True)

    # --- texts ----------------------------------------------------------------------------------------------------------

    def _items(self, path: str) -> list[Json]:
        found: list[Json] = self.plane.request("GET", path)["items"]
        return found

    def _post(self, path: str, body: Json) -> Json:
        try:
            return self.plane.request("POST", path, body)
        except ApiError as error:
            # A case that the API server does not take compares nothing.
            raise SystemExit(f"hack/parity: {path} {body['metadata']['name']}: {error}") from error

    def _patch(self, path: str, name: str, change: Json) -> None:
        self.plane.request("PATCH", f"{path}/{name}", change, content_type=MERGE_PATCH)

    def _delete_one(self, path: str, name: str) -> None:
        try:
            self.plane.request("DELETE", f"{path}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise


def source_of(case: Case) -> str:
    return f"{case.id}-source"


def name_of(event: Json) -> str:
    """Of the object that the event is about; empty: it names none, as the API server allows."""
    return str(event["involvedObject"].get("name", ""))


def is_of_the_program(event: Json) -> bool:
    component = str(event.get("source", {}).get("component") or event.get("reportingComponent", ""))
    return not component.endswith("-controller")


def claim_of(case: Case) -> Json:
    by_hand = case.class_.get("volumeBindingMode") != "Immediate"
    notes: dict[str, str | None] = {SELECTED_NODE: OWN_NODE} if by_hand else {}
    notes |= case.annotations
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
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": dict(annotations), "labels": dict(labels or {})},
        "spec": {**usual, **spec},
    }


def _class(case: Case, name: str) -> Json:
    """Each has a parameter of its own, by which a call that names no volume is told apart."""
    usual: Json = {"provisioner": case.driver, "volumeBindingMode": "WaitForFirstConsumer", **case.class_}
    meta = {"name": name, **usual.pop("metadata", {})}
    fields = {key: value for key, value in usual.items() if value is not None}
    return {"metadata": meta, "parameters": {"case": case.id, **case.parameters}, **fields}


def _snapshot_kind(kind: str) -> Json:
    return {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind}
