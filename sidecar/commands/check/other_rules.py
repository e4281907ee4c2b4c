"""Checks who else provisions for the driver: two who do so make volumes twice, and delete each other's."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from sidecar.commands.check.findings import Findings, NotAsked, Provisioner
from sidecar.commands.check.flag_rules import config_of, report_only
from sidecar.commands.check.lines import Line, failed, not_asked, ok, warning
from sidecar.commands.check.who import of_driver, our_sidecars, unnamed_of
from sidecar.drain.words import first_few
from sidecar.model import names

CHECK: Final = "provisioners"
LIVES: Final = 120.0
"""Seconds for which a Lease counts that nobody has renewed: upstream renews it every few seconds."""


def check(found: Findings) -> Iterator[Line]:
    elections = () if isinstance(found.elections, NotAsked) else found.elections
    reports = report_only(config_of(found))
    wrong = [*_same_speaker(found)] if reports else [*_same_pod(found), *_central(found), *_elected(found), *_same_node(found)]
    yield from wrong
    for part in (found.provisioners, found.elections):
        if isinstance(part, NotAsked):
            yield not_asked(CHECK, part)
    if isinstance(found.provisioners, NotAsked):
        return
    ours = our_sidecars(found)
    if not found.on_node and not ours:
        yield from _nobody(found, found.provisioners)
    elif not wrong:
        where = ", ".join(sorted({one.workload for one in ours})) or "this node"
        held = f", and {len(elections)} Leases of its name are old" if elections else ""
        yield ok(CHECK, f"{where} reports, and others provision" if reports else f"{where} alone{held}")


def _nobody(found: Findings, provisioners: tuple[Provisioner, ...]) -> Iterator[Line]:
    """No sidecar of ours is known to be the driver's."""
    several = sorted({one.workload for one in unnamed_of(provisioners, found.driver)})
    others = sorted({one.full_name for one in of_driver(found)})
    if several:
        text = f"which of our sidecars is that of {found.driver or 'this driver'} is not known: {first_few(several)}"
        yield failed(CHECK, text, "say its namespace with -n" if found.driver else "name the driver with --driver")
    elif others:
        yield failed(
            CHECK, f"{names.PEER} provisions for {found.driver}, and none of ours: {first_few(others)}", "swap its image, and see --image"
        )
    else:
        text = f"no workload has a container of our image{f' for {found.driver}' if found.driver else ''}"
        yield failed(CHECK, text, "install it (deploy/README.md), or say with --image what the image is called here")


def _same_pod(found: Findings) -> Iterator[Line]:
    pods: defaultdict[str, list[Provisioner]] = defaultdict(list)
    for one in of_driver(found):
        pods[one.workload].append(one)
    for workload, there in pods.items():
        if len(there) > 1 and any(one.ours for one in there):
            ours = next(one for one in there if one.ours)
            for other in there:
                if other is not ours and (not other.socket or other.socket == ours.socket):
                    text = f"{_what(other)} runs beside ours in {workload}: both make and delete the volumes of one node"
                    yield failed(CHECK, text, f"take container {other.container} out of {workload}")


def _central(found: Findings) -> Iterator[Line]:
    ours = {one.workload for one in our_sidecars(found)}
    for one in of_driver(found):
        if one.central and one.workload not in ours:
            text = f"{_what(one)} of {one.workload} provisions for the whole cluster: it and ours make the volumes of one claim"
            yield failed(CHECK, text, f"take container {one.container} out of {one.workload}, or scale that to 0")


def _elected(found: Findings) -> Iterator[Line]:
    told = any(one.central for one in of_driver(found))
    for lease in () if isinstance(found.elections, NotAsked) or told else found.elections:
        if lease.age is not None and lease.age < LIVES:
            text = f"{lease.holder or 'somebody'} holds Lease {lease.name}, as a central {names.PEER} of {found.driver} does"
            yield failed(CHECK, text, "find its pod, and take the provisioner out of it")


def _same_node(found: Findings) -> Iterator[Line]:
    """Of one workload a node has one pod; and of several none may share a node."""
    working = [one for one in of_driver(found) if not one.central]
    pods: Counter[str] = Counter()
    on: defaultdict[str, set[str]] = defaultdict(set)
    for workload, nodes in {one.workload: one.nodes for one in working}.items():
        pods.update(nodes)
        for node in nodes:
            on[node].add(workload)
    twice = sorted(node for node, count in pods.items() if count > 1)
    if twice:
        text = f"two pods provision for {found.driver} on node {first_few(twice)}: {', '.join(sorted(on[twice[0]]))}"
        yield failed(CHECK, text, "keep one of them off the node, by its nodeSelector, or delete it")
    for one in working if our_sidecars(found) else ():
        if not one.ours and not set(one.nodes) & set(twice) and one.workload not in {our.workload for our in our_sidecars(found)}:
            text = f"{_what(one)} of {one.workload} provisions on {len(set(one.nodes))} other nodes"
            yield warning(CHECK, f"{text}, which may be so while images are swapped", "swap its image too")


def _same_speaker(found: Findings) -> Iterator[Line]:
    """Where others provision: each of ours on a node writes its verdicts, and the laxer one may be read."""
    ours = our_sidecars(found)
    pods = Counter(node for one in ours for node in one.nodes)
    if twice := sorted(node for node, count in pods.items() if count > 1):
        there = sorted({one.full_name for one in ours if twice[0] in one.nodes})
        text = f"two of ours write the verdicts of {found.driver} on node {first_few(twice)}: {', '.join(there)}"
        yield failed(CHECK, text, "keep one of them off the node, by its nodeSelector, or delete it")


def _what(one: Provisioner) -> str:
    return f"another container of ours ({one.container})" if one.ours else f"{names.PEER} (container {one.container})"
