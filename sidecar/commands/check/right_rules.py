"""Checks the rights of the sidecar's account: each that is missing, with what it switches off. Which ones matter, the flags say."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sidecar import settings
from sidecar.commands.check.findings import Findings, NotAsked
from sidecar.commands.check.flag_rules import config_of, report_only
from sidecar.commands.check.lines import Line, failed, not_asked, ok, warning
from sidecar.commands.check.object_rules import IMMEDIATE, classes_of, with_secrets
from sidecar.config.config import Config
from sidecar.config.table import IGNORE, OFF, RANKED
from sidecar.csi.api import PUBLISH_UNPUBLISH_VOLUME, DriverInfo
from sidecar.kube.api import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_NODES,
    INSTANCES,
    LEASES,
    NODES,
    PODS,
    REFERENCE_GRANTS,
    REPLICA_SETS,
    SECRETS,
    VOLUMES,
)
from sidecar.model import names
from sidecar.rights.rights import PATCH_VOLUMES, Right
from sidecar.rights.table import Row, Sample, missing

CHECK: Final = "rights"
_NEEDED_ALWAYS: Final = frozenset(
    {
        *(Right(verb, VOLUMES) for verb in ("list", "watch", "get", "create", "delete")),
        *(Right(verb, CLAIMS) for verb in ("list", "watch", "get")),
        *(Right(verb, CLASSES) for verb in ("list", "watch", "get")),
    }
)
_MORE: Final[Mapping[Sample, Callable[[Config], bool]]] = {
    Sample.GATE: lambda config: config.drain_gate_image != "",
    Sample.EMPTYING: lambda config: config.evacuation_evict,
    Sample.MAINTENANCE: lambda config: config.maintenance,
    Sample.FAILOVER: lambda config: config.failover != OFF,
    Sample.NODE_LOSS: lambda config: config.node_delete_policy != "",
    Sample.REPROVISION: lambda config: config.allow_reprovision,
}
"""What asks for the components beyond drain decisions."""
_ASKED_FOR: Final = (CAPACITIES, PODS, REPLICA_SETS, LEASES, SECRETS, REFERENCE_GRANTS, ATTACHMENTS, ATTRIBUTES_CLASSES, INSTANCES)
_OF_NODES_THAT_ARE_GONE: Final = frozenset({Right("get", NODES), Right("list", NODES)})


def check(found: Findings) -> Iterator[Line]:
    if isinstance(found.rights, NotAsked):
        yield not_asked(CHECK, found.rights)
        return
    config = config_of(found)
    if found.rights.refused and not found.rights.allowed:
        text = f"{found.asker} has none of the {len(found.rights.refused)} rights that were asked about"
        yield failed(CHECK, text, "see that it exists, and that a role is bound to it, as in deploy/base/rbac.yaml")
        return
    rows = [row for row in missing(found.rights) if matters(row, found, config)]
    for same in _together(rows):
        row = same[0]
        verbs = ", ".join(each.right.verb for each in same)
        kind = str(row.right).partition(" ")[2]
        role = "a Role in its namespace" if row.right.own_namespace else "a ClusterRole"
        line = failed if any(_is_needed(each, found, config) for each in same) else warning
        yield line(CHECK, f"{found.asker} may not {verbs} {kind}; off is: {row.off}", f"grant {verbs} on {kind} in {role}")
    if not rows:
        asked = len(found.rights.allowed) + len(found.rights.refused)
        yield ok(CHECK, f"{found.asker} has all that these flags need, of {asked} that were asked about")


def _together(rows: list[Row]) -> list[list[Row]]:
    """Verbs of one kind of object that switch off the same."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        right = row.right
        groups.setdefault((right.resource, right.subresource, right.own_namespace, row.off), []).append(row)
    return list(groups.values())


def matters(row: Row, found: Findings, config: Config | None) -> bool:
    """Whether these flags, this driver and these classes use it. What is not known is taken to be off, but for what the base role has."""
    right = row.right
    match right.resource:
        case _ if _is_of_more(row):
            return config is not None and any(asked_for(config) for sample, asked_for in _MORE.items() if sample in row.samples)
        case _ if row.off.startswith("--failover"):
            return _fails_over(config)
        case _ if row.samples == {Sample.DRAIN}:
            return config is not None and settings.drains(config)
        case _ if right.resource == CAPACITIES:
            return config is not None and config.enable_capacity
        case _ if right.resource == PODS:
            return config is not None and config.enable_capacity and config.capacity_ownerref_level >= 0
        case _ if right.resource == REPLICA_SETS:
            return config is not None and config.enable_capacity and config.capacity_ownerref_level > 1
        case _ if right.resource == LEASES:
            asked = config is not None and (config.node_drain_policy != IGNORE or config.drain_gate_image or config.node_delete_policy)
            return bool(asked) or _fails_over(config)
        case _ if right == Right("list", CSI_NODES):
            return config is not None and (
                config.enable_capacity
                or config.node_deployment_placement == RANKED
                or config.node_delete_policy != ""
                or _fails_over(config)
            )
        case _ if right.resource == CSI_NODES:
            return config is not None and (config.enable_capacity or config.node_delete_policy != "")
        case _ if right in _OF_NODES_THAT_ARE_GONE:
            return config is not None and (config.enable_capacity or settings.drains(config))
        case _ if right.resource == ATTACHMENTS:
            return _fails_over(config) or (isinstance(found.socket, DriverInfo) and PUBLISH_UNPUBLISH_VOLUME in found.socket.controller)
        case _ if right.resource == INSTANCES:
            return config is not None and config.guest_drain
        case _ if right.resource == SECRETS:
            return with_secrets(found)
        case _ if right.resource == REFERENCE_GRANTS:
            return config is not None and config.gate("CrossNamespaceVolumeDataSource")
        case _ if right.resource == ATTRIBUTES_CLASSES:
            return config is not None and names.ATTRIBUTES_CLASS in config.gates_named and config.gate(names.ATTRIBUTES_CLASS)
        case _ if Sample.DRAIN in row.samples and row.off.startswith("drain"):
            return config is not None and settings.drains(config)
    return not (report_only(config) and right in (PATCH_VOLUMES, Right("create", VOLUMES), Right("delete", VOLUMES)))


def _is_needed(row: Row, found: Findings, config: Config | None) -> bool:
    """Without it something does not work that is asked for by a flag or a class, or that the program is for."""
    if row.right in _NEEDED_ALWAYS:
        return True
    if row.right == Right("update", CLAIMS):
        return any(one.binding_mode == IMMEDIATE for one in classes_of(found))
    asked_for = row.right.resource in _ASKED_FOR
    of_drains = Sample.DRAIN in row.samples and row.off.startswith("drain") and config is not None and settings.drains(config)
    return asked_for or _is_of_more(row) or of_drains


def _fails_over(config: Config | None) -> bool:
    return config is not None and config.failover != OFF


def _is_of_more(row: Row) -> bool:
    return Sample.BASE not in row.samples and not row.samples.isdisjoint(_MORE)
