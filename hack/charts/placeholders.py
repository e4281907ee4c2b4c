"""What stands in a rendered kustomization where the chart has a value.

A placeholder is a name that kustomize takes like any other. It has no space in it, at which a long line might be broken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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
