"""The report on a node that is gone: what was on it, what proves that it is lost, what became of each thing. Pure.

It has the name of the report of the node's own sidecar, and no owner, so that garbage collection leaves it. Where that sidecar had been
told that the node goes for good, it took the owner off itself, and the volumes of the node stand there (`loss.LeftReport`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain.report import head as new_report
from sidecar.drain.report import status_of
from sidecar.drain.watch.loss import Loss, Machine, Remain
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Volume
from sidecar.observe.sanitize import visible

MOST: Final = 500  # entries of a list
LONGEST: Final = 256  # characters about one of so many things
_COMES_BACK: Final = "bring the machine back with its disks and its name"


@dataclass(frozen=True, slots=True)
class Found:
    """What is told of one gone node."""

    loss: Loss
    since: float
    volumes: tuple[Volume, ...]
    remains: tuple[Remain, ...]
    pods: tuple[str, ...] = ()  # full names of pods that are still bound to it
    beside: int = 0  # volumes of another machine of the name, or of which it is not known: they stay


def gone_of(report: Json | None) -> Mapping[str, Any]:
    """What a stored report says of a node that is gone; empty: it is another kind of report, or there is none."""
    said = ((report or {}).get("status") or {}).get("gone")
    return said if isinstance(said, Mapping) else {}


def since_of(report: Json | None, machine: Machine, *, now: float) -> float:
    """Since when it is missed, as it was first written; a time in the future is not believed."""
    at = timestamps.to_seconds(str(gone_of(report).get("since") or "")) if status_of(report, machine.uid) else None
    return now if at is None or at > now else at


def head(machine: Machine, driver: str) -> Json:
    """The object without its status, to be created."""
    return new_report(machine.node, driver, labels={names.NODE_LOSS_FOR: driver})


def status(found: Found, stored: Json | None, done: Sequence[Json], *, agent: str, now: float) -> Json:
    """The whole status. It has no verdicts: nobody stands for them. What the node's own sidecar left of its leaving stays."""
    loss = found.loss
    before = status_of(stored, loss.machine.uid)
    leaving = {"leaving": before["leaving"]} if "leaving" in before else {}
    more = f"; {found.beside} of the volumes were on another machine of that name or do not say on which, and stay" if found.beside else ""
    said = {(item.kind, item.uid): item.why for item in found.remains}
    volumes = [
        {"name": volume.name, "claim": volume.claim_name, "phase": volume.phase, "reclaimPolicy": volume.reclaim_policy}
        | _message(said.get((names.VOLUME, volume.uid), ""))
        for volume in found.volumes
    ]
    claims = [
        {"namespace": item.namespace, "name": item.name, "uid": item.uid} | _message(item.why)
        for item in found.remains
        if item.kind == names.CLAIM
    ]
    return {
        "nodeUID": loss.machine.uid,
        "observedAt": timestamps.to_text(now),
        "agentVersion": agent,
        **leaving,
        "gone": {
            "since": timestamps.to_text(found.since),
            "evidence": str(loss.evidence),
            "message": f"{loss.why}{more}",
            "volumes": volumes[:MOST],
            "claims": claims[:MOST],
            "pods": list(found.pods[:MOST]),
            "done": list(done[-MOST:]),
        },
    }


def done_entry(item: Remain, *, now: float) -> Json:
    object_ = {"kind": item.kind, "namespace": item.namespace, "name": item.name, "uid": item.uid}
    return {"at": timestamps.to_text(now), "step": str(item.step), **object_}


def event(loss: Loss, volume: str) -> str:
    return (
        f"The data of volume {volume} may be lost: {loss.why}. {_COMES_BACK.capitalize()}, or, if the data may be lost, delete this claim, "
        "so that it is made anew elsewhere, and restore the data"
    )


def scrub(loss: Loss) -> str:
    """What the event of a volume says that is given up."""
    return (
        f"Given up, because node {loss.machine.node}, uid {loss.machine.uid}, is gone: {loss.why}. Nobody has emptied the volume: scrub "
        "that machine's disks before they are used again"
    )


def as_text(report: Json) -> str:
    """For `explain node`, with the next step; empty for a report on a node that is there."""
    gone, spec = gone_of(report), report.get("spec") or {}
    if not gone:
        return ""
    uid, name, pods = ((report.get("status") or {}).get("nodeUID")), report["metadata"]["name"], gone.get("pods")
    clears = "with --node-delete-policy=Cleanup wait: what is made again is cleared away; delete the rest by hand"
    annotate = f"kubectl annotate drainreport {name} {names.ACKNOWLEDGED}={uid} --overwrite"
    following = {
        "None": f"{_COMES_BACK}; or, if its disks are lost: {annotate}",
        "Unproven": f"see whether a node has another name now; else {_COMES_BACK}, or delete the claims below if they may be lost",
    }
    lines = [
        f"Node {spec.get('nodeName')} is missed since {gone.get('since')}, volumes of {spec.get('driver')}",
        f"That its disks do not come back: {gone.get('evidence')}; {gone.get('message')}",
        f"Next: {following.get(str(gone.get('evidence')), clears)}",
        *_section("Volumes", _table(gone, "volumes", "{name} ({phase}){why}")),
        *_section("Claims", _table(gone, "claims", "{namespace}/{name}{why}")),
        *_section("Pods", [str(item) for item in pods] if isinstance(pods, list) else []),
        *_section("Done", _table(gone, "done", "{at} {step} {name}")),
    ]
    return "\n".join(visible(line) for line in lines)


def _message(why: str) -> Json:
    return {"message": why if len(why) <= LONGEST else f"{why[: LONGEST - 1]}…"} if why else {}


def entries(gone: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = gone.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _table(gone: Mapping[str, Any], key: str, line: str) -> list[str]:
    """What is missing of an entry is left out of its line."""
    found = [{"why": f": {item['message']}" if item.get("message") else "", **item} for item in entries(gone, key)]
    return [line.format_map(defaultdict(str, item)) for item in found]


def _section(title: str, lines: list[str]) -> list[str]:
    rest = [f"  and {len(lines) - 20} more"] if len(lines) > 20 else []
    return [f"{title}:", *(f"  {line}" for line in lines[:20]), *rest] if lines else []
