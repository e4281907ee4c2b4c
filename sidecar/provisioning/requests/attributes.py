"""Reads the VolumeAttributesClass that a claim names."""

from collections.abc import Mapping
from types import MappingProxyType

from sidecar.csi.api import MODIFY_VOLUME
from sidecar.local.here import Here
from sidecar.model.objects import Claim
from sidecar.provisioning.needs import ATTRIBUTES_CLASS, Facts, Need, Ref, part, text
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.source_facts import fact, lacking


def attributes_of(here: Here, claim: Claim, facts: Facts, *, enabled: bool = True) -> Mapping[str, str] | Need | Unfit | None:
    """The mutable parameters of the claim's VolumeAttributesClass; None when the claim names none or the feature gate is off."""
    if not enabled or not claim.attributes_class:
        return None
    ref = Ref(ATTRIBUTES_CLASS, claim.attributes_class)
    if refused := lacking(here, MODIFY_VOLUME, str(ref)):
        return refused
    found = fact(facts, ref, otherwise="create it, or name another one")
    if isinstance(found, Need | Unfit):
        return found
    if (driver := text(found, "driverName")) != here.driver.name:
        return Unfit(f"{ref} is for driver {driver!r}, the claim's StorageClass for {here.driver.name!r}; name one of that driver")
    parameters = {} if (given := part(found, "parameters")) is None else given
    if not isinstance(parameters, Mapping) or not all(isinstance(word, str) for pair in parameters.items() for word in pair):
        return Unfit(f"{ref} has parameters that are not text; correct it")
    return MappingProxyType(dict(parameters))
