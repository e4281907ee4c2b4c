"""A replica that may be made anew: db-0 of three on n1, with all locks open; each test changes one thing."""

from dataclasses import replace
from typing import Any

from sidecar.drain.judgement.assessment import Place
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision.facts import Facts, FoundClaim
from sidecar.drain.reprovision.lock import LocksView
from sidecar.drain.reprovision.record import ClaimName, Target
from sidecar.drain.reprovision.workload import Workload
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Volume
from tests.harness.drain import samples
from tests.harness.drain.samples import NAMESPACE, NODE

ME = Machine(NODE, f"uid-{NODE}")
LABELS = {"app": "db", names.POD_REVISION: "db-1"}
TAINTED = samples.node(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))
WORKLOAD = Workload("uid-db", "db", False, 3, 0, ("data",), 10.0, "db-1", True, samples.pod("db", node="", labels={"app": "db"}))
ELSEWHERE = Place(("pv-0",), "n4", 0, ())


def claim(name: str = "data-db-0", **changes: Any) -> Claim:
    return samples.claim(name, policy="Reprovision", volume_name="pv-0", **changes)


def volume(name: str = "pv-0", of: str = "data-db-0", **changes: Any) -> Volume:
    return samples.volume(name, of, **changes)


def replica(number: int, *, node: str | None = None, **changes: Any) -> Pod:
    where = f"n{number + 1}" if node is None else node
    return samples.pod(f"db-{number}", f"data-db-{number}", **{"node": where, "labels": LABELS} | changes)


def target(*claims: str) -> Target:
    named = tuple(ClaimName(name, f"uid-{NAMESPACE}-{name}") for name in claims or ("data-db-0",))
    return Target(NAMESPACE, "db-0", replica(0).uid, "db", "uid-db", named)


def found(**changes: Any) -> FoundClaim:
    return replace(FoundClaim(claim(), (names.CLAIM_PROTECTION,), volume=volume()), **changes)


def facts(*pods: Pod, **changes: Any) -> Facts:
    everybody = pods or (replica(0), replica(1), replica(2))
    base = Facts(everybody, workload=WORKLOAD, claims={"data-db-0": found()}, classes={samples.CLASS: samples.class_()})
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


def view(of: Facts | None = None, **changes: Any) -> LocksView:
    """`node`, `snapshot`: what is judged, where it is another."""
    judged = changes.pop("snapshot", {})
    snapshot = samples.snapshot(**{"node": TAINTED, "volumes": (volume(),), "claims": (claim(),), "pods": (replica(0),)} | judged)
    return replace(LocksView(True, ME, snapshot, {"pv-0": ELSEWHERE}, target(), of or facts()), **changes)
