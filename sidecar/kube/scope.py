"""Which part of a collection is listed and watched: its namespace and its selectors."""

from collections.abc import Mapping
from typing import Final

from sidecar.kube.api import Resource

_OF_NO_OBJECT: Final = "metadata.name=none"
_ANY_NAMESPACE: Final = "default"


def smallest(resource: Resource, scope: Mapping[str, str]) -> dict[str, str]:
    """The cheapest list in this scope that tells how far the server has come.

    It has the scope's selectors, since more may not be allowed. To find one object among all that a selector fits, a server may have to
    read very many, so it names one object besides; in one namespace, because only there a name is a key.
    """
    fields = scope["field_selector"]
    if not fields and not scope["label_selector"]:
        return dict(scope)
    if not fields.startswith("metadata.name="):
        fields = ",".join(filter(None, (fields, _OF_NO_OBJECT)))
    namespace = scope["namespace"] or (_ANY_NAMESPACE if resource.namespaced else "")
    return {"namespace": namespace, "label_selector": scope["label_selector"], "field_selector": fields}
