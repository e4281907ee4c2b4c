"""Texts for objects and their changes: what a person needs of them, and no more."""

from hack.sim.world.node import TOPOLOGY_KEY
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, EVENTS, PODS, VOLUMES, Resource
from sidecar.model import names
from sidecar.model.objects import Json

TOLD = (CLAIMS, VOLUMES, PODS, CAPACITIES, EVENTS, CLASSES)


def title(resource: Resource, obj: Json) -> str:
    """The name by which the transcript calls the object."""
    name = obj["metadata"]["name"]
    if resource == CAPACITIES:
        node = ((obj.get("nodeTopology") or {}).get("matchLabels") or {}).get(TOPOLOGY_KEY, "nowhere")
        return f"capacity of {obj['storageClassName']} on {node}"
    if resource == EVENTS:
        about = obj["involvedObject"]
        word = {"PersistentVolumeClaim": "claim", "PersistentVolume": "volume"}.get(about["kind"], about["kind"].lower())
        return f"event {obj['type']} {obj['reason']} on {word} {about['name']}"
    return f"{_WORDS.get(resource, resource.kind)} {name}"


def change(resource: Resource, old: Json | None, new: Json | None) -> str:
    """What changed between two versions."""
    if new is None:
        return "gone"
    if old is None:
        return f"created ({about(resource, new)})"
    was, now = _facts(resource, old), _facts(resource, new)
    told = (_told(fact, was[fact], now[fact]) for fact in now if was[fact] != now[fact])
    return ", ".join(text for text in told if text) or "nothing that matters"


def about(resource: Resource, obj: Json) -> str:
    """The part of an object that does not change."""
    if resource == CLAIMS:
        return f"{obj['spec'].get('storageClassName')}, {obj['spec']['resources']['requests']['storage']}"
    if resource == VOLUMES:
        terms = ((obj["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        where = [value for term in terms for item in term.get("matchExpressions") or () for value in item["values"]]
        return f"{obj['spec']['csi']['volumeHandle']}, {obj['spec']['capacity']['storage']}, only on {', '.join(where) or 'any node'}"
    if resource == PODS:
        used = [
            volume["persistentVolumeClaim"]["claimName"] for volume in obj["spec"].get("volumes") or () if "persistentVolumeClaim" in volume
        ]
        return f"uses {', '.join(used)}" if used else "uses nothing"
    if resource == CLASSES:
        return str(obj["volumeBindingMode"])
    return str(obj.get("capacity") or obj.get("message") or "")


def row(resource: Resource, obj: Json) -> str:
    """The object as it is now, in one line."""
    facts = _facts(resource, obj)
    told = (_told(fact, "", text) for fact, text in facts.items() if text and fact not in ("capacity", "finalizers"))
    return f"{title(resource, obj)}: " + ", ".join([about(resource, obj), *told])


_WORDS = {CLAIMS: "claim", VOLUMES: "volume", PODS: "pod", CLASSES: "class"}


def _told(fact: str, was: str, now: str) -> str:
    match fact:
        case "selected":
            return f"selected-node={now}" if now else f"selected-node={was} taken back"
        case "asked":
            return f"given to {now}"
        case "volume":
            return f"volume {now}"
        case "node":
            return f"on {now}"
        case "capacity" if was:
            return f"{was} becomes {now}"
        case "finalizers":
            gone = sorted(set(was.split()) - set(now.split()))
            return f"{', '.join(gone)} finalizer taken off" if gone else f"finalizers {now}"
        case "going":
            return "to be deleted"
        case _:
            return now


def _facts(resource: Resource, obj: Json) -> dict[str, str]:
    """The parts of an object that may change, in the order in which they are shown."""
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    notes = meta.get("annotations") or {}
    refusals = [item["message"] for item in status.get("conditions") or () if item.get("reason") == "Unschedulable"]
    return {
        "selected": notes.get(names.SELECTED_NODE, ""),
        "asked": "the driver" if notes.get(names.STORAGE_PROVISIONER) else "",
        "volume": spec.get("volumeName", ""),
        "node": spec.get("nodeName", ""),
        "phase": status.get("phase", ""),
        "refused": f"unschedulable: {refusals[0]}" if refusals else "",
        "capacity": obj.get("capacity", "") if resource == CAPACITIES else "",
        "count": f"{obj['count']} times now" if obj.get("count", 1) > 1 else "",
        "finalizers": " ".join(_WHOSE.get(item, item) for item in meta.get("finalizers") or ()),
        "going": "yes" if meta.get("deletionTimestamp") else "",
    }


_WHOSE = {
    names.VOLUME_FINALIZER: "provisioner's",
    "kubernetes.io/pvc-protection": "protection's",
    "kubernetes.io/pv-protection": "protection's",
}
