"""`explain nodes`: each node that has volumes of a driver, or its registration, in one line. The cluster is listed once for all."""

from collections.abc import Iterable, Sequence

from sidecar.commands.explain.judged import Judged, judge, listed, own_of
from sidecar.commands.explain.listing_io import Cluster
from sidecar.commands.explain.question import Answer, Question
from sidecar.commands.explain.rows import NARROW, row, summary
from sidecar.commands.explain.rows import WIDE as WIDE_HEADS
from sidecar.commands.forms import WIDE, structured
from sidecar.commands.tables import table
from sidecar.config.config import Config
from sidecar.drain.snapshot import Own
from sidecar.drain.words import Intent, Status
from sidecar.model import timestamps


async def answer(config: Config, question: Question) -> Answer:
    """A line for each node and driver."""
    cluster = await listed(config)
    return told(judge_all(cluster, question.driver, own_of(config)), cluster, question)


def judge_all(cluster: Cluster, driver: str, own: Own) -> tuple[Judged, ...]:
    """By node and driver. A node that has nothing of the driver, and could have nothing, is left out."""
    pairs = ((node, its) for node in sorted(cluster.nodes) for its in cluster.drivers(node, driver) if driver in ("", its))
    return tuple(one for node, its in pairs for one in judge(cluster, node, its, own))


def told(judged: Sequence[Judged], cluster: Cluster, question: Question) -> Answer:
    intent = Intent(question.intent) if question.intent else None
    statuses = tuple(one.assessment.verdict(intent or Intent.RETIRE).status for one in judged) or _of_nothing(cluster, question.driver)
    if question.is_structured:
        said = {"observedAt": timestamps.to_text(cluster.at), "nodes": [summary(one, intent) for one in judged]}
        return Answer(structured({**said, "unknown": list(cluster.ignorance)}, question.form), statuses)
    return Answer("\n".join(_lines(judged, cluster, question, intent)), statuses)


def _of_nothing(cluster: Cluster, driver: str) -> tuple[Status, ...]:
    """Where no node has anything, that is ready if all could be read, and if the driver's name is one that is known."""
    return () if (not driver or cluster.knows(driver)) and not cluster.ignorance else (Status.UNKNOWN,)


def _lines(judged: Sequence[Judged], cluster: Cluster, question: Question, intent: Intent | None) -> Iterable[str]:
    wide = question.form == WIDE
    yield from table([row(one, intent, wide=wide) for one in judged], heads=WIDE_HEADS if wide else NARROW)
    if not judged:
        whose = f" of {question.driver}" if question.driver else ", of any CSI driver,"
        yield f"no node has volumes{whose} that it alone can reach, or could have"
    yield from (f"not known: {sentence}" for sentence in cluster.ignorance)
