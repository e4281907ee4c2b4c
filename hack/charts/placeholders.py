"""What stands in a rendered kustomization where the chart has a value.

A placeholder is a name that kustomize takes like any other. It has no space in it, at which a long line might be broken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

SETTINGS: Final[Mapping[str, str]] = {
    "driver": "DRIVER.placeholder.example",
    "driver-in-names": "driver-in-lower-case.placeholder.example",
    "namespace": "namespace-placeholder",
    "account": "account-placeholder",
    "user": "system:serviceaccount:namespace-placeholder:account-placeholder",
    "guard-image": "guard-image-placeholder",
    "placement": "placement-placeholder",
    "secret-namespaces": "secret-namespaces-placeholder",
    "runbook": "runbook-placeholder",
    "socket-folder": "/socket-folder-placeholder",
    "socket": "socket-placeholder",
}
"""Of the ConfigMap that the components read."""
RELEASE: Final = "release-placeholder"
RELEASE_IN_CLUSTER: Final = "cluster-wide-placeholder"
"""For what is in no namespace: another one may have a release of the same name."""
POLICY_VERSION: Final = "v0placeholder0"
BLOCK: Final = "block-placeholder"
"""With a name behind it, a key in whose place stands what deploy/chart/templates/_helpers.tpl defines by that name."""

_EXPRESSIONS: Final[Mapping[str, str]] = {
    SETTINGS["driver"]: ".Values.driver",
    SETTINGS["driver-in-names"]: ".Values.driver | lower",
    SETTINGS["namespace"]: ".Release.Namespace",
    SETTINGS["account"]: ".Values.account.name",
    SETTINGS["guard-image"]: ".Values.gate.guardImage",
    SETTINGS["placement"]: ".Values.ownNode.placement",
    SETTINGS["secret-namespaces"]: '.Values.ownNode.secretNamespaces | join " "',
    SETTINGS["runbook"]: ".Values.monitoring.runbook",
    SETTINGS["socket-folder"]: ".Values.reportOnly.socketFolder",
    SETTINGS["socket"]: ".Values.reportOnly.socket",
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
