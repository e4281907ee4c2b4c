"""A report on a node that is gone as text for people: what `explain node` prints of it, with the next step."""

from collections.abc import Mapping
from typing import Any, Final

from sidecar.drain.node_loss.evidence import Evidence
from sidecar.drain.node_loss.report import UNPROVEN, gone_of
from sidecar.drain.publish.stored import entries, mapping, text
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.observe.sanitize import visible

_SHOWN: Final = 20
_CLEARED: Final = "with --node-delete-policy=Cleanup wait: what is made again is cleared away; delete the rest by hand"
_COMES_BACK: Final = "bring the machine back with its disks and its name"
_NEXT: Final[Mapping[str, str]] = {
    Evidence.NONE: f"{_COMES_BACK}; or, if its disks are lost, say so on this report: kubectl annotate drainreport {{report}} "
    f"{names.ACKNOWLEDGED}=WHO. Then --node-delete-policy=Cleanup clears up; without it delete the claims below",
    Evidence.ANNOUNCED: _CLEARED,
    Evidence.ACKNOWLEDGED: _CLEARED,
    UNPROVEN: f"see whether a node has another name now; else {_COMES_BACK}, or delete the claims below if their data may be lost",
}


def told(report: Json) -> str:
    """Empty for a report on a node that is there."""
    gone, spec = gone_of(report), mapping(report, "spec")
    if not gone:
        return ""
    evidence, name = text(gone, "evidence"), text(mapping(report, "metadata"), "name")
    lines = [
        f"Node {text(spec, 'nodeName')} is missed since {text(gone, 'since')}, volumes of {text(spec, 'driver')}",
        f"That its disks do not come back: {evidence}; {text(gone, 'message')}",
        f"Next: {_NEXT.get(evidence, 'read the report').format(report=name)}",
        *_section(
            "Volumes",
            gone,
            "volumes",
            lambda item: f"{text(item, 'name')} ({text(item, 'phase')}, {text(item, 'reclaimPolicy')}){_why(item)}",
        ),
        *_section("Claims", gone, "claims", lambda item: f"{text(item, 'namespace')}/{text(item, 'name')}{_why(item)}"),
        *_section("Pods", gone, "pods", lambda item: f"{text(item, 'namespace')}/{text(item, 'name')}"),
        *_section("Snapshots", gone, "snapshots", lambda item: text(item, "name")),
        *_section(
            "Done", gone, "done", lambda item: f"{text(item, 'at')} {text(item, 'step')} {text(item, 'namespace')}/{text(item, 'name')}"
        ),
    ]
    return "\n".join(visible(line) for line in lines)


def _why(item: Json) -> str:
    found = text(item, "message")
    return f": {found}" if found else ""


def _section(title: str, gone: Json, key: str, line: Any) -> list[str]:
    found, more = entries(gone, key), gone.get(f"{key}Truncated")
    if not found:
        return []
    rest = len(found) - _SHOWN + (more if isinstance(more, int) else 0)
    return [f"{title}:", *(f"  {line(item)}" for item in found[:_SHOWN]), *([f"  and {rest} more"] if rest > 0 else [])]
