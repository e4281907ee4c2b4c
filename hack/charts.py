"""The Helm chart, made from the kustomizations: nothing about an object is written twice.

A component, or a file of the base, is rendered with placeholders where the chart has a value, and its objects go into a template of the
same name, each under the value that switches it on.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from hack.lib.command import Failure
from hack.lib.control_plane import REPOSITORY, binaries

Json = dict[str, Any]
DEPLOY: Final = REPOSITORY / "deploy"
CHART: Final = DEPLOY / "chart"
BASE_NAMES: Final = "csi-node-sidecar"
"""What the base calls its namespace, its account and their role: three names here, and there one."""


# --- placeholders -----------------------------------------------------------------------------------------------------
# Names that kustomize takes like any other. There is no space in them, at which a long line might be broken.

RELEASE: Final = "release-placeholder"
RELEASE_IN_CLUSTER: Final = "cluster-wide-placeholder"
"""For what is in no namespace: another one may have a release of the same name."""
POLICY_VERSION: Final = "v0placeholder0"
BLOCK: Final = "block-placeholder"
"""With a name behind it, a key in whose place stands what deploy/chart/templates/_helpers.tpl defines by that name."""

_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "driver": ("DRIVER.placeholder.example", ".Values.driver"),
    "driver-in-names": ("driver-in-lower-case.placeholder.example", ".Values.driver | lower"),
    "namespace": ("namespace-placeholder", ".Release.Namespace"),
    "account": ("account-placeholder", ".Values.account.name"),
    "guard-image": ("guard-image-placeholder", ".Values.gate.guardImage"),
    "placement": ("placement-placeholder", ".Values.ownNode.placement"),
    "secret-namespaces": ("secret-namespaces-placeholder", '.Values.ownNode.secretNamespaces | join " "'),
    "runbook": ("runbook-placeholder", ".Values.monitoring.runbook"),
    "socket-folder": ("/socket-folder-placeholder", ".Values.reportOnly.socketFolder"),
    "socket": ("socket-placeholder", ".Values.reportOnly.socket"),
}
SETTINGS: Final[Mapping[str, str]] = {name: placeholder for name, (placeholder, _) in _SETTINGS.items()} | {
    "user": "system:serviceaccount:namespace-placeholder:account-placeholder"
}
"""Of the ConfigMap that the components read."""
_EXPRESSIONS: Final[Mapping[str, str]] = {
    **dict(_SETTINGS.values()),
    RELEASE: 'include "csi-node-sidecar.fullname" .',
    RELEASE_IN_CLUSTER: 'printf "%s--%s" (include "csi-node-sidecar.fullname" .) .Release.Namespace',
    POLICY_VERSION: ".Values.scopedWatches.policyVersion",
}


def templated(text: str) -> str:
    """With each placeholder replaced, and with braces that are not Helm's kept from it.

    A placeholder that is all of a value is quoted: a namespace may be called 12.
    """
    text = text.replace("{{", "{{`{{`}}")
    for name, expression in _EXPRESSIONS.items():
        text = re.sub(rf"(?<=: ){re.escape(name)}$", "{{ " + expression + " | quote }}", text, flags=re.MULTILINE)
        text = text.replace(name, "{{ " + expression + " }}")
    include = r'\1{{- include "csi-node-sidecar.\2" . | nindent %d }}'
    return re.sub(rf"^( *){BLOCK}-(\w+): ''$", lambda found: found.expand(include) % len(found[1]), text, flags=re.MULTILINE)


def only_if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text.rstrip()}\n{{{{- end }}}}\n"


# --- templates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """`of`: the component's name below deploy/components, or a file of the base."""

    of: str
    when: str
    """Its objects are there if this is true."""
    but: Mapping[str, str] = field(default_factory=dict)
    """By kind, what is to be true instead."""
    change: Callable[[Json], Json] = field(default=lambda item: item)
    beside: Sequence[str] = ()
    """Components that are rendered with it, for what they change in its objects. What they bring is in templates of their own."""
    is_its_own: Callable[[Json], bool] = field(default=lambda item: True)
    optional: Sequence[tuple[str, str]] = ()
    """Lines, by a pattern of one or more whole ones, that are there if the first is."""


def _of_the_release(item: Json) -> Json:
    """With the names of a release, for there may be several."""
    text = yaml.safe_dump(item, sort_keys=False, width=10_000)
    text = re.sub(rf"^(\s*namespace:) {BASE_NAMES}$", rf"\1 {SETTINGS['namespace']}", text, flags=re.MULTILINE)
    made: Json = yaml.safe_load(text)
    for subject in made.get("subjects", []):
        subject["name"] = SETTINGS["account"]
    own = RELEASE_IN_CLUSTER if made["kind"].startswith("Cluster") else RELEASE
    if "roleRef" in made:
        made["roleRef"]["name"] = own
    made["metadata"]["name"] = SETTINGS["account"] if made["kind"] == "ServiceAccount" else own
    return made


def _monitoring_of_the_release(item: Json) -> Json:
    return item | {"metadata": item["metadata"] | {"namespace": SETTINGS["namespace"]}}


def _of_any_version(item: Json) -> Json:
    return item | {"apiVersion": f"admissionregistration.k8s.io/{POLICY_VERSION}"} if item["kind"].startswith("Mutating") else item


def _is_of_report_only(item: Json) -> bool:
    return item["kind"] in ("DaemonSet", "ServiceAccount") or item["metadata"]["name"].startswith("csi-node-sidecar-report--")


def _as_the_values_say(item: Json) -> Json:
    made: Json = yaml.safe_load(yaml.safe_dump(item, sort_keys=False))
    if made["kind"] == "DaemonSet":
        pod = made["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        for part, block, keys in (
            (made["spec"], "strategy", ("updateStrategy",)),
            (pod, "pod", ("nodeSelector", "priorityClassName", "tolerations")),
            (container, "container", ("image", "imagePullPolicy", "resources", "securityContext")),
        ):
            for key in keys:
                part.pop(key, None)
            part[f"{BLOCK}-{block}"] = ""
    return made


def _labelled(item: Json) -> Json:
    block = "monitoring" if item["kind"] in ("PodMonitor", "PrometheusRule") else "labels"
    labels = item["metadata"].get("labels", {}) | {f"{BLOCK}-{block}": ""}
    return item | {"metadata": item["metadata"] | {"labels": labels}}


SOURCES: Final[dict[str, Source]] = {
    "rights": Source("rbac.yaml", ".Values.rights.create", {"ServiceAccount": ".Values.account.create"}, _of_the_release),
    "drain": Source("drain", ".Values.drain.enabled"),
    "gate": Source("gate", ".Values.gate.enabled"),
    "emptying": Source("emptying", ".Values.emptying.enabled"),
    "maintenance": Source("maintenance", ".Values.maintenance.enabled"),
    "failover": Source("failover", ".Values.failover.enabled"),
    "node-loss": Source("node-loss", ".Values.nodeLoss.enabled"),
    "reprovision": Source("reprovision", ".Values.reprovision.enabled"),
    "own-node": Source("own-node", ".Values.ownNode.enabled"),
    "scoped-watches": Source("scoped-watches", "and .Values.scopedWatches.enabled .Values.scopedWatches.policy", change=_of_any_version),
    "report-only": Source(
        "report-only",
        ".Values.reportOnly.enabled",
        change=_as_the_values_say,
        beside=("drain", "gate", "monitoring"),
        is_its_own=_is_of_report_only,
        optional=[
            (".Values.gate.enabled", r" *- --drain-gate-image=.*\n"),
            (".Values.monitoring.enabled", r" *csi-node-sidecar.io/scrape: .*\n"),
        ],
    ),
    "monitoring": Source("monitoring", ".Values.monitoring.enabled", change=_monitoring_of_the_release),
}


def template(source: Source, objects: Sequence[Json]) -> str:
    """The whole file."""
    at = "deploy/base/" if source.of.endswith(".yaml") else "deploy/components/"
    parts = [f"{{{{- /* Made by hack/chart from {at}{source.of}. */}}}}\n"]
    by_condition: dict[str, list[Json]] = {}
    for item in filter(source.is_its_own, objects):
        by_condition.setdefault(source.but.get(item["kind"], source.when), []).append(_labelled(source.change(item)))
    for condition, chosen in by_condition.items():
        text = templated("".join("---\n" + _dumped(item) for item in chosen))
        for given, lines in source.optional:
            text = re.sub(f"^{lines}", lambda found, given=given: only_if(given, found.group()), text, flags=re.MULTILINE)  # type: ignore[misc]
        parts.append(only_if(condition, text))
    return "".join(parts)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as blocks, so that a change of one is read in a diff."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value and not re.search(r"[ \t]\n", value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _dumped(item: Json) -> str:
    return yaml.dump(item, Dumper=_Dumper, sort_keys=False, width=140, allow_unicode=True)


# --- the files ----------------------------------------------------------------------------------------------------------


def files() -> dict[Path, str]:
    found = {name: _objects(source) for name, source in SOURCES.items()}
    made = {CHART / "templates" / f"{name}.yaml": template(source, found[name]) for name, source in SOURCES.items()}
    crds = {"nodedrainreports": "drain", "maintenances": "maintenance"}
    return made | {CHART / "crds" / f"{name}.yaml": _types(component) for name, component in crds.items()}


def _types(component: str) -> str:
    """Without aliases, and with keys in kustomize's order. Helm installs them once, for all releases, and never changes them."""
    text = (DEPLOY / "components" / component / "crd.yaml").read_text()
    return "---\n".join(_dumped(item) for item in json.loads(json.dumps(list(yaml.safe_load_all(text)), sort_keys=True)))


def _objects(source: Source) -> Sequence[Json]:
    if source.of.endswith(".yaml"):
        return list(yaml.safe_load_all((DEPLOY / "base" / source.of).read_text()))
    with tempfile.TemporaryDirectory(prefix=".chart-", dir=DEPLOY) as folder:
        return _rendered(Path(folder), (source.of, *source.beside))


def _rendered(folder: Path, components: Sequence[str]) -> Sequence[Json]:
    """Kustomize takes components by relative path only, so the folder is one of deploy's."""
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "csi-node-sidecar-settings", "annotations": {"config.kubernetes.io/local-config": "true"}},
        "data": dict(SETTINGS),
    }
    build = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["settings.yaml"],
        "components": [f"../components/{name}" for name in components],
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(build))
    command = [str(binaries("core") / "kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise Failure(f"{components[0]} cannot be rendered: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))
