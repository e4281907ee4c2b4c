"""A replica that may be made anew: db-0 of three on n1, with all locks open; each test changes one thing."""

from dataclasses import replace
from typing import Any

from sidecar.drain.anew import Facts, FoundClaim, Target
from sidecar.drain.anew_locks import LocksView
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.statefulset import StatefulSet
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Volume
from tests.harness.drain import samples
from tests.harness.drain.samples import CLASS, DRIVER, NAMESPACE, NODE

SETTINGS = Settings(NODE, DRIVER, "storage", "1.0.0", reprovisions=True, reprovision_pause=0.0)
ME = f"{NODE}/uid-{NODE}"
LABELS = {"app": "db", names.POD_REVISION: "db-1"}
TAINTED = samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
POD_SPEC: dict[str, Any] = {"containers": [{"name": "main"}]}


def stateful_set(pod: dict[str, Any] | None = None, wish: dict[str, Any] | None = None, **changes: Any) -> StatefulSet:
    """`pod`: of the spec of its template; `wish`: of that of its claim template, where None takes a field away."""
    asked = {"storageClassName": CLASS, "resources": {"requests": {"storage": "10Gi"}}} | (wish or {})
    template = {"metadata": {"name": "data"}, "spec": {key: value for key, value in asked.items() if value is not None}}
    spec = {"replicas": 3, "volumeClaimTemplates": [template]}
    spec["template"] = {"metadata": {"labels": {"app": "db"}}, "spec": POD_SPEC | (pod or {})}
    meta = {"namespace": NAMESPACE, "name": "db", "uid": "uid-db", "generation": 1}
    made = StatefulSet.of({"metadata": meta, "spec": spec, "status": {"observedGeneration": 1, "updateRevision": "db-1"}})
    return replace(made, **changes)


def claim(name: str = "data-db-0", **changes: Any) -> Claim:
    return samples.claim(name, policy="Reprovision", **{"volume_name": "pv-0"} | changes)


def volume(name: str = "pv-0", of: str = "data-db-0", **changes: Any) -> Volume:
    return samples.volume(name, of, **changes)


def replica(number: int, *, node: str | None = None, **changes: Any) -> Pod:
    where = f"n{number + 1}" if node is None else node
    return samples.pod(f"db-{number}", f"data-db-{number}", **{"node": where, "labels": LABELS} | changes)


def target(*claims: str) -> Target:
    named = tuple((name, f"uid-{NAMESPACE}-{name}") for name in claims or ("data-db-0",))
    return Target(NAMESPACE, "db-0", replica(0).uid, "db", "uid-db", named)


def found(**changes: Any) -> FoundClaim:
    return replace(FoundClaim(claim(), (names.CLAIM_PROTECTION,), volume=volume()), **changes)


def facts(*pods: Pod, **changes: Any) -> Facts:
    everybody = pods or (replica(0), replica(1), replica(2))
    base = Facts(everybody, workload=stateful_set(), claims={"data-db-0": found()}, classes={CLASS: samples.class_()})
    return replace(base, **changes)


def noted(**words: str) -> FoundClaim:
    """The claim with these annotations besides: `peers`, `deletion`, `mark`, `lost`."""
    keys = {
        "peers": names.REPROVISION_PEERS,
        "deletion": names.ALLOW_CLAIM_DELETION,
        "mark": names.REPROVISIONED_BY,
        "lost": names.LOST_WITH,
    }
    said = {keys[word]: text for word, text in words.items()}
    return found(claim=replace(claim(), notes=tuple(sorted((dict(claim().notes) | said).items()))))


def judged(*others: str, gib: float = 100, **changes: Any) -> Snapshot:
    """Of n1 with db-0, in a cluster with these other nodes, each of which has so much room."""
    others = others or ("n2", "n3", "n4")
    around: dict[str, Any] = {
        "others": tuple(samples.node(name) for name in others),
        "capacities": tuple(samples.record(name, gib) for name in others),
    }
    here: dict[str, Any] = {"node": TAINTED, "volumes": (volume(),), "claims": (claim(),), "pods": (replica(0),)}
    return samples.snapshot(**here | around | changes)


def view(of: Facts | None = None, snapshot: Snapshot | None = None, **changes: Any) -> LocksView:
    base = LocksView(SETTINGS, ME, snapshot or judged(), target(), of or facts(), now=samples.NOW)
    return replace(base, **changes)
