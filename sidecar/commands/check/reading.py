"""Reads what `check` needs from the objects of a cluster."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from sidecar.commands.check.findings import DriverObject, Election, Neighbour, NodeFacts, Provisioner
from sidecar.config.table import TABLE
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

OUR_IMAGE: Final = "csi-node-sidecar"
_DRIVER_IMAGE: Final = "csi-node-sidecar-driver"
"""The driver of demo and tests, which is no sidecar."""
_READER: Final = "read-drbd"
"""The command of the container beside it that reads DRBD, and the end of its image's name."""
_PEERS: Final = ("csi-provisioner", names.PEER)
_VARIABLES: Final = frozenset(row.env for row in TABLE if row.env)
_FROM_FIELDS: Final = {"spec.nodeName": "the-node", "metadata.namespace": "", "metadata.name": "the-pod"}
_ADDRESS: Final = re.compile(r"--?(?:csi-address|csi-endpoint|endpoint)(?:=(.*))?")
"""The flag that tells a sidecar, or the driver itself, its socket."""


# --- workloads --------------------------------------------------------------------------------------------------------


def provisioners(obj: Mapping[str, Any], kind: str, *, drivers: Iterable[str], image: str) -> Iterator[Provisioner]:
    """Of a workload, or of a pod."""
    template = obj.get("spec") or {}
    template = template if kind == names.POD else (template.get("template") or {}).get("spec") or {}
    containers = [*(template.get("containers") or ()), *(one for one in template.get("initContainers") or () if one.get("restartPolicy"))]
    found = [one for one in containers if _is_ours(one, image) or _is_peer(one)]
    if not found:
        return
    meta, mentions = obj["metadata"], _mentions(template, drivers)
    namespace = meta.get("namespace", "")
    for one in found:
        words, environ = words_of(one, namespace), _environ(one, namespace)
        on_host, read_only = _on_host(template, one, _address(words) or "/run/csi/socket")
        yield Provisioner(
            kind,
            namespace,
            meta["name"],
            one.get("name", ""),
            one.get("image", ""),
            _is_ours(one, image),
            words,
            environ,
            template.get("serviceAccountName") or "default",
            on_host,
            read_only,
            tuple(_neighbours(template, (other for other in containers if other not in found), namespace)),
            mentions,
            (template["nodeName"],) if kind == names.POD and template.get("nodeName") else (),
        )


def base_name(image: str) -> str:
    """Of an image: without registry, tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def _is_ours(container: Json, image: str) -> bool:
    name = base_name(container.get("image", ""))
    is_another = name.startswith(_DRIVER_IMAGE) or is_reader(container)
    return image in (name if "/" not in image else container.get("image", "")) and not is_another


def is_reader(container: Json) -> bool:
    return base_name(container.get("image", "")).endswith(_READER) or _READER in map(str, container.get("args") or ())


def _is_peer(container: Json) -> bool:
    command = posixpath.basename(str((container.get("command") or [""])[0]))
    return any(peer in base_name(container.get("image", "")) or peer == command for peer in _PEERS)


def words_of(container: Json, namespace: str) -> tuple[str, ...]:
    """The program's own words: arguments, and what stands behind the program in `command`, with variables as the kubelet puts them in."""
    words = [*(container.get("command") or ())[1:], *(container.get("args") or ())]
    values = {item["name"]: _value(item, namespace) for item in container.get("env") or () if "name" in item}
    put_in = [re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), str(word)) for word in words]
    return tuple(put_in[1:] if put_in[:1] == ["run"] else put_in)


def _environ(container: Json, namespace: str) -> Mapping[str, str]:
    return {item["name"]: _value(item, namespace) for item in container.get("env") or () if item.get("name") in _VARIABLES}


def _value(item: Json, namespace: str) -> str:
    """What comes from a Secret or a ConfigMap is not looked up."""
    if "value" in item:
        return str(item["value"])
    path = ((item.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
    return (namespace if path == "metadata.namespace" else _FROM_FIELDS.get(path, "")) or "set-elsewhere"


def _address(words: Sequence[str]) -> str:
    """Of the socket that a container is told; empty: none."""
    for word, following in zip(words, (*words[1:], ""), strict=False):
        if match := _ADDRESS.fullmatch(word):
            path = (following if match[1] is None else match[1]).removeprefix("unix://").removeprefix("unix:")
            return path if path.startswith("/") else ""
    return ""


def _on_host(template: Json, container: Json, path: str) -> tuple[str, bool]:
    """Where a path in the container is on the node, and whether it is mounted read-only there."""
    mounts = [mount for mount in container.get("volumeMounts") or () if _within(path, mount.get("mountPath", ""))]
    if not mounts:
        return "", False
    mount = max(mounts, key=lambda mount: len(mount["mountPath"]))
    behind = posixpath.join(mount.get("subPath", ""), posixpath.relpath(path, mount["mountPath"]))
    volume: Json = next((one for one in template.get("volumes") or () if one.get("name") == mount.get("name")), {})
    folder = (volume.get("hostPath") or {}).get("path") or f"volume {mount.get('name')}:"
    return posixpath.join(folder, behind), bool(mount.get("readOnly"))


def _within(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))


def _neighbours(template: Json, others: Iterable[Json], namespace: str) -> Iterator[Neighbour]:
    for one in others:
        words = words_of(one, namespace)
        if address := _address(words):
            yield Neighbour(one.get("name", ""), _on_host(template, one, address)[0])


def _mentions(template: Json, drivers: Iterable[str]) -> frozenset[str]:
    texts = list(_texts(template))
    return frozenset(name for name in drivers if any(re.search(_as_a_word(name), text) for text in texts))


def _as_a_word(name: str) -> str:
    return rf"(?<![A-Za-z0-9.-]){re.escape(name)}(?![A-Za-z0-9-]|\.[A-Za-z0-9])"


def _texts(template: Json) -> Iterator[str]:
    for container in template.get("containers") or ():
        yield from (str(word) for key in ("command", "args") for word in container.get(key) or ())
        yield from (str(item.get("value", "")) for item in container.get("env") or ())
    for volume in template.get("volumes") or ():
        yield str((volume.get("hostPath") or {}).get("path", ""))


def selector_of(obj: Mapping[str, Any]) -> str:
    """Of a workload's pods, as a list takes it."""
    selector = (obj.get("spec") or {}).get("selector") or {}
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for item in selector.get("matchExpressions") or ():
        key, values = item["key"], ",".join(item.get("values") or ())
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(words[item["operator"]])
    return ",".join(parts)


def works_on(pod: Mapping[str, Any]) -> str:
    """The node of a pod that is neither at its end nor on its way to it; empty: none."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return "" if ended or "deletionTimestamp" in pod["metadata"] else str((pod.get("spec") or {}).get("nodeName") or "")


# --- objects of a driver ----------------------------------------------------------------------------------------------


def driver_object(obj: Mapping[str, Any]) -> DriverObject:
    """Where nothing is said, a driver attaches, and publishes no capacity."""
    spec = obj.get("spec") or {}
    return DriverObject(attaches=spec.get("attachRequired") is not False, storage_capacity=spec.get("storageCapacity") is True)


def node_facts(name: str, csi_node: Mapping[str, Any] | None, node: Mapping[str, Any] | None, driver: str) -> NodeFacts:
    entries = ((csi_node or {}).get("spec") or {}).get("drivers") or ()
    entry = next((one for one in entries if one.get("name") == driver), None)
    keys = tuple((entry or {}).get("topologyKeys") or ())
    labels = None if node is None else (node["metadata"].get("labels") or {})
    return NodeFacts(name, entry is not None, keys, None if labels is None else {key: labels[key] for key in keys if key in labels})


def election_name(driver: str) -> str:
    """Of the Lease by which instances of external-provisioner elect one; upstream replaces what a name may not hold."""
    name = re.sub("[^a-zA-Z0-9-]", "-", driver)
    return f"{name}X" if name.endswith("-") else name


def election(obj: Mapping[str, Any], *, now: float) -> Election:
    meta, spec = obj["metadata"], obj.get("spec") or {}
    renewed = spec.get("renewTime")
    at = timestamps.to_seconds(renewed) if renewed else None
    return Election(f"{meta.get('namespace')}/{meta['name']}", spec.get("holderIdentity") or "", None if at is None else now - at)


def seconds_of_date(text: str) -> float | None:
    """Of an HTTP header Date; None: there is none, or it cannot be read."""
    try:
        found: datetime = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found.timestamp()
