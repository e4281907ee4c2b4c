"""`explain pvc ns/name`: what the running program would do with a claim now, and why.

Where the driver's socket can be reached, the driver is asked. Elsewhere `--driver` and `--node` name the driver and the node to think of,
and what only the driver knows is shown as "not known from here".
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar import settings
from sidecar.commands.explain import claim_of_others
from sidecar.commands.explain.answer import Answer
from sidecar.commands.explain.hearing import UNKNOWN, Hearing, hearing_of
from sidecar.commands.explain.hearing_io import others_of, policy
from sidecar.commands.explain.question import Question
from sidecar.commands.forms import TABLE, structured
from sidecar.commands.tables import table
from sidecar.config.config import Config
from sidecar.config.table import LABELLED
from sidecar.csi.api import CONTROLLER_SERVICE, CREATE_DELETE_VOLUME, TOPOLOGY, CapacityAnswer, Driver, DriverInfo
from sidecar.csi.outcome import measure
from sidecar.doors import Instruments, Opened, fitted, former_journal_folder, journal_folder, open_doors
from sidecar.errors import Fatal
from sidecar.kube.api import CLAIMS, CLASSES, CSI_NODES, NODES, VOLUMES, KubeApi, find
from sidecar.local.here import Here
from sidecar.local.volume_location import lies_here
from sidecar.model.objects import Claim, Class, Json, Volume
from sidecar.model.topology import Segment
from sidecar.observe.decisions import shown
from sidecar.observe.sanitize import plain, to_json
from sidecar.ownership.rules import Race
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.creation_record import CreationRecord, deletion_to_end
from sidecar.provisioning.decisions import Bid, ClaimDecision, Fetch, Measure, Wait
from sidecar.provisioning.lookups import Lookups
from sidecar.provisioning.needs import CLAIM, Absent
from sidecar.provisioning.progress import Racing
from sidecar.provisioning.rules import decide
from sidecar.provisioning.view import ClaimView

_PATIENCE: Final = 5.0
_NAMESPACE: Final = "default"


@dataclass(slots=True, eq=False, repr=False)
class Facts:
    """What was found out, in the order in which it is printed."""

    rows: dict[str, object] = field(default_factory=dict)

    def add(self, name: str, value: object) -> None:
        self.rows[name] = value


async def answer(config: Config, question: Question) -> Answer:
    return Answer(render(await _explain(config, question), form=question.form))


def render(facts: Facts, *, form: str) -> str:
    """A table for people, or JSON, or YAML."""
    if form != TABLE:
        return structured(plain(facts.rows), form)
    rows = [(name, value if isinstance(value, str) else to_json(plain(value))) for name, value in facts.rows.items()]
    return "\n".join(table(rows))


async def _explain(config: Config, question: Question) -> Facts:
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    question = replace(question, namespace=question.namespace or doors.kube.namespace or _NAMESPACE)
    facts = Facts()
    try:
        async with _driver(doors) as info:
            await _find_out(doors, question, info=info, facts=facts)
    finally:
        await doors.close()
    return facts


@contextlib.asynccontextmanager
async def _driver(doors: Opened) -> AsyncIterator[DriverInfo | None]:
    """What the driver says about itself; None if it cannot be reached within a few seconds."""
    if not os.path.exists(doors.config.csi_address):  # noqa: ASYNC240, PTH110 - one look at a local path, before anything else runs
        yield None
        return
    moving = asyncio.create_task(doors.connection.run())
    try:
        info: DriverInfo | None
        try:
            info = await asyncio.wait_for(doors.connection.first_ready(), _PATIENCE)
        except (TimeoutError, Fatal):
            info = None
        yield info
    finally:
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)


async def _find_out(doors: Opened, question: Question, *, info: DriverInfo | None, facts: Facts) -> None:
    kube, config = doors.kube, doors.config
    obj = await kube.get(CLAIMS, question.name, namespace=question.namespace)
    claim = Claim.of(obj, keep_whole=True)
    facts.add("claim", f"{claim.full_name}, uid {claim.uid}")
    facts.add("provisioner", claim.provisioner or "none yet: no provisioner has been asked (the annotation is missing)")
    facts.add("selected node", claim.selected_node or "none")
    name = info.name if info else question.driver
    facts.add("driver", f"{name} {info.version}, asked on {config.csi_address}" if info else _unreachable(config, question))
    if not config.provisioning:
        facts.rows |= await claim_of_others.rows(kube, claim)
        _conclude(facts, claim_of_others.DECISION, claim_of_others.why(claim, name))
        return
    begun = _begun(config, name, claim.uid) if name else []
    if suspects := [record.leftover for record in begun if record.suspect]:
        facts.add("left behind", "; ".join(suspects))
    hearing = await _hearing(kube, config, obj, info or _named(name), asked=info is not None) if name else None
    for key, value in hearing.rows().items() if hearing else ():
        facts.add(key, value)
    if config.watch_scope == LABELLED:
        facts.add("admission policy", await policy(kube))
    if not name or claim.provisioner != name:
        _conclude(facts, "Ignore", _why_not_ours(claim, name))
        return
    node = question.node or (info.node_id if info else "")
    info = info or await _imagine(kube, name, node)
    here = Here(node, info, settings.options(await fitted(config, kube)), identity="explain")
    facts.add("node", f"{node or UNKNOWN}, segment {info.segment}")
    view = await _view(kube, here, claim=claim, facts=facts, record=_under_way(begun, here, claim))
    decision = await _decide(kube, doors.connection.driver, view=view, facts=facts)
    if isinstance(decision, Wait | Bid) and not claim.volume_name:
        told = f"; {node} does not hear of the claim before others have left it" if hearing and hearing.leaves_out(node) else ""
        facts.add("race", f"as if this node's delay were over; only the running program knows which delay it has drawn{told}")
    said = shown(decision)
    _conclude(facts, said.decision, said.why, {key: value for key, value in said.fields.items() if key in ("request", "query")})


async def _hearing(kube: KubeApi, config: Config, obj: Json, driver: DriverInfo, *, asked: bool) -> Hearing | None:
    """None: it is no claim of this driver."""
    claim, others = Claim.of(obj), await others_of(kube, driver.name, config.namespace)
    if claim.provisioner != driver.name and (claim.provisioner or claim.class_name not in {class_.name for class_ in others.classes}):
        return None
    return hearing_of(obj, config, driver, others, asked=asked)


def _begun(config: Config, driver: str, uid: str) -> list[CreationRecord]:
    """What the journals of this machine say of the claim; nothing where there are none."""
    with contextlib.suppress(OSError):
        found = leftovers_io.read_all(journal_folder(config), driver, former=former_journal_folder(config))
        return [record for record in found.values() if record.uid == uid]
    return []


def _under_way(begun: list[CreationRecord], here: Here, claim: Claim) -> CreationRecord | None:
    """What the running program has on record for the claim and sees to before all else, if it runs on the node to think of."""
    local = [record for record in begun if record.node in ("", here.node)]
    own = next((record for record in local if not record.suspect), None)
    if own is not None or claim.volume_name or claim.selected_node != here.node:
        return own
    left = (deletion_to_end(record) for record in local if record.request.name == here.volume_name(claim.uid))
    return next(filter(None, left), None)


async def _view(kube: KubeApi, here: Here, *, claim: Claim, facts: Facts, record: CreationRecord | None = None) -> ClaimView:
    class_json = await find(kube, CLASSES, claim.class_name) if claim.class_name else None
    class_ = Class.of(class_json) if class_json and class_json.get("provisioner") == here.driver.name else None
    about = (
        f"binding mode {class_.binding_mode or 'not set'}, reclaim policy {class_.reclaim_policy}"
        if class_
        else "not there, or another driver's"
    )
    facts.add("class", f"{claim.class_name or '(none)'}: {about}")
    if record is not None:
        facts.add("under way", f"volume {record.request.name}: a creation was begun, and the journal does not say that it is over")
    volume_name = record.request.name if record is not None else here.volume_name(claim.uid)
    found = await find(kube, VOLUMES, volume_name)
    facts.add("volume", f"{volume_name}: {(found.get('status') or {}).get('phase', 'exists')}" if found else f"{volume_name}: not there")
    # While a race is open, the question is whether this node would bid once its delay is over.
    race = Race(0, bid_at=0.0)
    source = claim.source if here.with_topology and claim.source and claim.source.kind == CLAIM else None
    return ClaimView(
        now=0.0,
        here=here,
        chance=0.5,
        claim=claim,
        class_=class_,
        volume=Volume.of(found) if found else None,
        progress=Racing(race),
        record=record,
        volume_here=await _volume_here(kube, here, claim.volume_name) if claim.is_source else None,
        source_here=source is None or await _has_claim(kube, here, source.namespace, source.name),
    )


async def _has_claim(kube: KubeApi, here: Here, namespace: str, name: str) -> bool:
    """Whether that claim's volume lies on the node."""
    found = await find(kube, CLAIMS, name, namespace=namespace)
    return found is not None and await _volume_here(kube, here, Claim.of(found).volume_name) is not None


async def _volume_here(kube: KubeApi, here: Here, name: str) -> Volume | None:
    found = await find(kube, VOLUMES, name) if name else None
    volume = Volume.of(found) if found else None
    return volume if volume and volume.driver == here.driver.name and lies_here(here, volume) else None


def _why_not_ours(claim: Claim, driver: str) -> str:
    if not driver:
        return "the driver is not known, so nothing can be decided"
    if claim.provisioner:
        return f"the claim is for {claim.provisioner}, not for this driver"
    if claim.volume_name:
        return f"bound to volume {claim.volume_name}"
    return (
        "no provisioner has been asked yet: the volume controller does that at once for a class that binds immediately, "
        "otherwise when the first consumer, a pod that uses the claim, has been scheduled"
    )


async def _decide(kube: KubeApi, driver: Driver, *, view: ClaimView, facts: Facts) -> ClaimDecision:
    decision, lookup = decide(view), Lookups(kube)
    while isinstance(decision, Fetch):
        found = await lookup.fetch(decision.refs)
        for ref, what in found.items():
            facts.add(str(ref), what.said_of(ref) if isinstance(what, Absent) else "found")
        view = replace(view, facts={**view.facts, **found})
        decision = decide(view)
    if isinstance(decision, Measure):
        answer = await measure(driver, decision.query)
        facts.add("free space", f"{answer.available} bytes" if isinstance(answer, CapacityAnswer) else UNKNOWN)
        decision = decide(replace(view, free=answer))
    return decision


def _conclude(facts: Facts, decision: str, why: str, more: Mapping[str, object] | None = None) -> None:
    facts.add("decision", decision)
    facts.add("why", why)
    for key, value in (more or {}).items():
        facts.add(key, value)


def _named(driver: str) -> DriverInfo:
    """One of which nothing is known but its name."""
    return DriverInfo(driver, "", frozenset(), frozenset(), "", Segment())


async def _imagine(kube: KubeApi, driver: str, node: str) -> DriverInfo:
    """The driver as the node's CSINode and labels describe it, with the usual capabilities: only the driver itself could tell them."""
    csi_node = await find(kube, CSI_NODES, node) if node else None
    entry: Json = next((item for item in ((csi_node or {}).get("spec") or {}).get("drivers") or () if item.get("name") == driver), {})
    keys = entry.get("topologyKeys") or ()
    labels = ((await find(kube, NODES, node) or {}).get("metadata") or {}).get("labels") or {} if keys else {}
    segment = Segment.of({key: labels[key] for key in keys if key in labels})
    plugin = frozenset({CONTROLLER_SERVICE, TOPOLOGY} if keys else {CONTROLLER_SERVICE})
    return DriverInfo(driver, "", plugin, frozenset({CREATE_DELETE_VOLUME}), entry.get("nodeID", ""), segment)


def _unreachable(config: Config, question: Question) -> str:
    named = f"{question.driver}, as given; " if question.driver else ""
    return f"{named}{UNKNOWN}: no ready driver at {config.csi_address}" + ("" if question.driver else "; name it with --driver")
