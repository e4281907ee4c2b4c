"""`explain node NAME`: may the node be drained, may it be retired, and what blocks that. Works for any node, from anywhere.

The judgement is that of the drain room, on lists that are fetched now. What only the node's own sidecar knows (creations that have
begun, and volumes that its driver has without a PersistentVolume) is not visible from here, and the answer says so.
"""

from collections.abc import Iterable, Sequence

from sidecar.commands.explain.judged import Judged, judge, look, own_of
from sidecar.commands.explain.question import Answer, Question
from sidecar.commands.explain.rows import about_own_word, as_json
from sidecar.commands.forms import structured
from sidecar.commands.tables import Fitted
from sidecar.commands.text import render
from sidecar.config.config import Config
from sidecar.doors import Instruments, open_doors
from sidecar.drain.watch.loss_report import as_text, gone_of
from sidecar.drain.words import Intent, Status
from sidecar.kube.api import DRAIN_REPORTS, KubeApi, records
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.objects import Json


async def answer(config: Config, question: Question) -> Answer:
    """The judgement for each driver of the node, or for the one that was named."""
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        cluster = await look(doors.kube, question.name)
    except NotFound:
        if not (gone := await _gone(doors.kube, question)):
            raise
        # Of a node that is gone nobody judges anything.
        return told((), question, gone) if question.is_structured else Answer("\n\n".join(map(as_text, gone)), (Status.UNKNOWN,))
    finally:
        await doors.close()
    return told(judge(cluster, question.name, question.driver, own_of(config)), question)


async def _gone(kube: KubeApi, question: Question) -> Sequence[Json]:
    """The reports of other nodes' sidecars on a node that is gone, by driver."""
    reports = records(kube, DRAIN_REPORTS, lambda obj: obj, label_selector=names.NODE_LOSS_FOR)
    try:
        found = [obj async for obj in reports if (obj.get("spec") or {}).get("nodeName") == question.name]
    except ApiError:
        return ()  # then nothing more is known than that there is no such Node
    return [obj for obj in found if gone_of(obj) and question.driver in ("", obj["spec"].get("driver"))]


def told(judged: Sequence[Judged], question: Question, gone: Iterable[Json] = ()) -> Answer:
    """`gone`: reports on a node that is gone, each of another driver."""
    intent = Intent(question.intent) if question.intent else None
    statuses = [one.assessment.verdict(intent or Intent.RETIRE).status for one in judged]
    if question.is_structured:
        lost = [_lost(obj) for obj in gone]
        words = structured([*map(as_json, judged), *lost], question.form)
        return Answer(words, (*statuses, *([Status.UNKNOWN] if lost else [])))
    if not judged:
        return Answer(nobody(question.name))
    words = "\n\n".join(render(one.assessment, Fitted(), intent=intent, beside=about_own_word(one, intent)) for one in judged)
    return Answer(words, tuple(statuses))


def nobody(node: str) -> str:
    return f"node {node}: no CSI driver has, or could have, volumes that only this node can reach"


def _lost(obj: Json) -> Json:
    spec, uid = obj.get("spec") or {}, (obj.get("status") or {}).get("nodeUID")
    return {"node": spec.get("nodeName"), "driver": spec.get("driver"), "gone": {"uid": uid, **gone_of(obj)}}
