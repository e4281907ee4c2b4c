"""Reads all annotations of a claim, also of one that is not held whole."""

import json
from collections.abc import Mapping

from sidecar.model.objects import Claim
from sidecar.provisioning.needs import CLAIM, Facts, Need, Ref, part, text


def annotations_of(claim: Claim, facts: Facts) -> Mapping[str, str] | Need:
    """Those of one that is not held whole are read from the claim as it was fetched."""
    ref = Ref(CLAIM, claim.name, claim.namespace)
    if not claim.whole and ref not in facts:
        return Need(frozenset({ref}))
    obj = json.loads(claim.whole) if claim.whole else facts[ref]
    notes = part(obj, "metadata", "annotations") if text(obj, "metadata", "uid") == claim.uid else None
    return {key: value for key, value in notes.items() if isinstance(value, str)} if isinstance(notes, Mapping) else {}
