"""`explain node NAME`: may the node be drained, may it be retired, and what blocks that. Works for any node, from anywhere.

The judgement is that of the drain room, on lists that are fetched now. What only the node's own sidecar knows (creations that have
begun, and volumes that its driver has without a PersistentVolume) is not visible from here, and the answer says so.
"""

from collections.abc import Iterable, Sequence

from sidecar.commands.explain.answer import Answer
from sidecar.commands.explain.judged import Judged, judge, listing
from sidecar.commands.explain.question import Question
from sidecar.commands.explain.rows import about_own_word, as_json
from sidecar.commands.forms import structured
from sidecar.commands.tables import Fitted
from sidecar.config.config import Config
from sidecar.doors import Instruments, open_doors
from sidecar.drain.node_loss import as_text, report
from sidecar.drain.publish.as_text import render
from sidecar.drain.publish.stored import mapping, status_of, text
from sidecar.drain.vocabulary import Intent, Policy, Status
from sidecar.drain.wording import first_few
from sidecar.errors import Fatal
from sidecar.kube.api import DRAIN_REPORTS, KubeApi, records
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.objects import Json


async def answer(config: Config, question: Question) -> Answer:
    """The judgement for each driver of the node, or for the one that was named."""
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        listed = await listing(doors.kube, config, question.name).look()
    except NotFound:
        if gone := await _gone(doors.kube, question):
            return _lost(gone, question)
        raise
    finally:
        await doors.close()
    judged = judge(listed, question.driver, default_policy=default_policy(config))
    if not judged and listed.ignorance:
        unread = first_few(listed.ignorance, 1)
        raise Fatal(f"the drivers of node {question.name} could not be listed, so name one with --driver: {unread}")
    return told(judged, question)


def _lost(gone: Sequence[Json], question: Question) -> Answer:
    """Of a node that is gone nobody judges anything."""
    return told((), question, gone) if question.is_structured else Answer("\n\n".join(map(as_text.told, gone)), (Status.UNKNOWN,))


async def _gone(kube: KubeApi, question: Question) -> Sequence[Json]:
    """The reports of other nodes' sidecars on a node that is gone, by driver."""
    reports = records(kube, DRAIN_REPORTS, lambda obj: obj, label_selector=names.NODE_LOSS_FOR)
    try:
        found = [obj async for obj in reports if (obj.get("spec") or {}).get("nodeName") == question.name]
    except ApiError:
        return ()  # then nothing more is known than that there is no such Node
    return [obj for obj in found if report.gone_of(obj) and question.driver in ("", obj["spec"].get("driver"))]


def default_policy(config: Config) -> Policy | None:
    return Policy(config.drain_default_policy) if config.drain_default_policy else None


def told(judged: Sequence[Judged], question: Question, gone: Iterable[Json] = ()) -> Answer:
    """`gone`: reports on a node that is gone, each of another driver."""
    intent = Intent(question.intent) if question.intent else None
    lost = {text(mapping(obj, "spec"), "driver"): {"gone": {"uid": text(status_of(obj), "nodeUID"), **report.gone_of(obj)}} for obj in gone}
    known = {one.assessment.driver for one in judged}
    said = [as_json(one) | lost.get(one.assessment.driver, {}) for one in judged]
    said += [{"node": question.name, "driver": driver, **found} for driver, found in sorted(lost.items()) if driver not in known]
    words = structured(said, question.form) if question.is_structured else _as_text(judged, question, intent)
    statuses = tuple(one.assessment.verdict(intent or Intent.RETIRE).status for one in judged)
    return Answer(words, (*statuses, Status.UNKNOWN) if lost else statuses)


def _as_text(judged: Sequence[Judged], question: Question, intent: Intent | None) -> str:
    if not judged:
        return f"node {question.name}: no CSI driver has, or could have, volumes that only this node can reach"
    return "\n\n".join(render(one.assessment, intent=intent, beside=about_own_word(one, intent), layout=Fitted()) for one in judged)
