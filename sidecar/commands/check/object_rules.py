"""Checks the objects that say how a driver is used: its CSIDriver, its storage classes, and the capacity that is published."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sidecar.commands.check.findings import Findings, NodeFacts, NotAsked, known
from sidecar.commands.check.flag_rules import config_of, report_only
from sidecar.commands.check.lines import Line, failed, not_asked, ok, warning
from sidecar.config.words import closest
from sidecar.csi.api import PUBLISH_UNPUBLISH_VOLUME, DriverInfo
from sidecar.model import names
from sidecar.model.objects import Class
from sidecar.provisioning.requests.request import Unfit, wrong_parameters
from sidecar.provisioning.requests.secrets import secret_refs

IMMEDIATE: Final = "Immediate"
LATE: Final = "WaitForFirstConsumer"
_NOTE: Final = re.compile(r"pvc\.annotations\['([^']*)'\]")


def driver_object(found: Findings) -> Iterator[Line]:
    check, config = names.CSI_DRIVER, config_of(found)
    if not found.driver:
        return
    if isinstance(found.drivers, NotAsked):
        yield not_asked(check, found.drivers)
        return
    this = found.drivers.get(found.driver)
    if this is None:
        text = f"there is no object {found.driver}: volumes wait to be attached, and published capacity is not looked at"
        meant = closest(found.driver, found.drivers)
        create = "create it with attachRequired: false and storageCapacity: true, as deploy/base/csidriver.yaml does"
        yield failed(check, text, f"is {meant} meant? Else {create}" if meant else create)
        return
    wrong = []
    info = found.socket
    if this.attaches and isinstance(info, DriverInfo) and PUBLISH_UNPUBLISH_VOLUME not in info.controller:
        text = (
            "attachRequired is true, which it is when nobody says otherwise, and the driver attaches nothing: pods wait for an attachment"
        )
        wrong.append(failed(check, text, "create the object anew with attachRequired: false"))
    if config is not None and not report_only(config):
        if config.enable_capacity and not this.storage_capacity:
            text = "storageCapacity is false, and --enable-capacity publishes: the scheduler does not look, and puts pods on full nodes"
            wrong.append(failed(check, text, "set storageCapacity: true"))
        if this.storage_capacity and not config.enable_capacity:
            text = f"storageCapacity is true, and nothing is published: no pod with a claim of a {LATE} class is ever scheduled"
            wrong.append(failed(check, text, "add --enable-capacity, or set storageCapacity: false"))
    yield from wrong
    if not wrong:
        yield ok(check, f"{found.driver}, attachRequired {_bool(this.attaches)}, storageCapacity {_bool(this.storage_capacity)}")


def published(found: Findings) -> Iterator[Line]:
    check, config = "capacity", config_of(found)
    if config is None or not config.enable_capacity or not found.driver:
        return
    if isinstance(found.published, NotAsked):
        yield not_asked(check, found.published)
        return
    late = [one for one in classes_of(found) if one.binding_mode != IMMEDIATE or config.capacity_for_immediate_binding]
    if late and not found.published:
        text = f"no {names.CAPACITY} of {found.driver} is there, with {len(late)} classes to publish for"
        yield warning(check, text, "see /readyz and the log of the sidecar, and the lines about rights and topology here")
    else:
        yield ok(check, f"{found.published} objects")


# --- classes ----------------------------------------------------------------------------------------------------------


def classes_of(found: Findings) -> tuple[Class, ...]:
    return tuple(one for one in known(found.classes) or () if one.provisioner == found.driver)


def with_secrets(found: Findings) -> bool:
    return any("secret-name" in key for one in classes_of(found) for key in one.parameters)


def classes(found: Findings) -> Iterator[Line]:
    check = "classes"
    if not found.driver:
        return
    if isinstance(found.classes, NotAsked):
        yield not_asked(check, found.classes)
        return
    ours = classes_of(found)
    if not ours:
        meant = closest(found.driver, (one.provisioner for one in found.classes))
        remedy = (
            f"class {_named(found.classes, meant)} has provisioner {meant}: is that a slip?"
            if meant
            else "create one, if claims shall be made"
        )
        yield warning(check, f"no {names.STORAGE_CLASS} has provisioner {found.driver}", remedy)
    for one in ours:
        wrong = [*_binding(check, found, one), *_parameters(check, one), *_allowed(check, found, one)]
        yield from wrong
        if not wrong:
            yield ok(check, f"{one.name}: {one.binding_mode or 'no binding mode'}, {one.reclaim_policy or 'no reclaim policy'}")


def _binding(check: str, found: Findings, one: Class) -> Iterator[Line]:
    config = config_of(found)
    if one.binding_mode != IMMEDIATE or report_only(config):
        return
    if config is not None and not config.node_deployment_immediate_binding:
        text = f"{one.name} binds at once, and --node-deployment-immediate-binding=false: nobody takes its claims, which stay Pending"
        yield failed(check, text, f"make the class anew with {LATE}, or take that flag out")
    else:
        text = f"{one.name} binds at once: a volume gets its node before anybody knows where the pod can run"
        yield warning(check, text, f"make the class anew with {LATE}, unless you want that")


def _parameters(check: str, one: Class) -> Iterator[Line]:
    """Of Secrets the names alone. Nobody looks into one."""
    notes = {key: "name" for value in one.parameters.values() for key in _NOTE.findall(value)}
    refs = secret_refs(one, volume_name="pvc-1", claim_namespace="namespace", claim_name="name", annotations=notes)
    for unfit in (wrong_parameters(one), refs):
        if isinstance(unfit, Unfit):
            yield failed(check, f"no claim of it can be provisioned: {unfit.why}", "make the class anew with other parameters")


def _allowed(check: str, found: Findings, one: Class) -> Iterator[Line]:
    """Asked from outside alone: of one node it says little that a class is not for it."""
    nodes = known(found.nodes)
    if not one.allowed or not nodes or found.on_node:
        return
    if not any(_has(node, term) for term in one.allowed for node in nodes):
        keys = ", ".join(sorted({key for term in one.allowed for key in term}))
        has = ", ".join(sorted({key for node in nodes for key in node.keys})) or "none"
        text = f"{one.name}: its allowedTopologies ({keys}) allow no node that has the driver: its claims stay Pending"
        yield failed(check, text, f"use keys that the driver reports ({has}), and values that nodes have")


def _has(node: NodeFacts, term: Mapping[str, tuple[str, ...]]) -> bool:
    labels = node.labels or {}
    return all(key in node.keys and labels.get(key) in values for key, values in term.items())


def _named(classes: tuple[Class, ...], provisioner: str) -> str:
    return next(one.name for one in classes if one.provisioner == provisioner)


def _bool(value: bool) -> str:
    return str(value).lower()
