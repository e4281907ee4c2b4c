"""`explain nodes`: each node that has volumes of a driver, or its registration, in one line. The cluster is listed once for all."""

from collections.abc import Iterable, Sequence

from sidecar.commands.explain.answer import Answer
from sidecar.commands.explain.judged import Judged, judge, listing
from sidecar.commands.explain.node import default_policy
from sidecar.commands.explain.question import Question
from sidecar.commands.explain.rows import NARROW, row, summary
from sidecar.commands.explain.rows import WIDE as WIDE_HEADS
from sidecar.commands.forms import WIDE, structured
from sidecar.commands.tables import table
from sidecar.config.config import Config
from sidecar.doors import Instruments, open_doors
from sidecar.drain.facts.listed_cluster import ListedCluster, NodePicker
from sidecar.drain.vocabulary import Intent, Policy, Status
from sidecar.drain.wording import first_few
from sidecar.errors import Fatal
from sidecar.model import timestamps


async def answer(config: Config, question: Question) -> Answer:
    """A line for each node and driver."""
    cluster = await listed(config)
    return told(judge_all(cluster, question.driver, default_policy=default_policy(config)), cluster, question)


async def listed(config: Config) -> ListedCluster:
    """The whole cluster, now."""
    doors = await open_doors(config, Instruments(), on_link=lambda _: None)
    try:
        cluster = await listing(doors.kube, config).look_at_all()
    finally:
        await doors.close()
    if not cluster.nodes and cluster.ignorance:
        raise Fatal(f"the nodes could not be listed: {first_few(cluster.ignorance, 1)}; check --kubeconfig and your rights")
    return cluster


def judge_all(cluster: ListedCluster, driver: str, *, default_policy: Policy | None) -> tuple[Judged, ...]:
    """By node and driver. A node that has nothing of the driver, and could have nothing, is left out."""
    picker = NodePicker(cluster)
    return tuple(_judged(picker, driver, default_policy))


def _judged(picker: NodePicker, driver: str, default_policy: Policy | None) -> Iterable[Judged]:
    for name in picker.names():
        node = picker.node(name)
        for its in node.all_drivers():
            if driver in ("", its):
                yield from judge(node, its, default_policy=default_policy)


def told(judged: Sequence[Judged], cluster: ListedCluster, question: Question) -> Answer:
    intent = Intent(question.intent) if question.intent else None
    statuses = tuple(one.assessment.verdict(intent or Intent.RETIRE).status for one in judged) or _of_nothing(cluster, question.driver)
    if question.is_structured:
        said = {"observedAt": timestamps.to_text(cluster.at), "nodes": [summary(one, intent) for one in judged]}
        return Answer(structured({**said, "unknown": list(cluster.ignorance)}, question.form), statuses)
    return Answer("\n".join(_lines(judged, cluster, question, intent)), statuses)


def _of_nothing(cluster: ListedCluster, driver: str) -> tuple[Status, ...]:
    """Where no node has anything, that is ready if all could be read, and if the driver's name is one that is known."""
    known = not driver or any(class_.provisioner == driver for class_ in cluster.classes)
    return () if known and not cluster.ignorance else (Status.UNKNOWN,)


def _lines(judged: Sequence[Judged], cluster: ListedCluster, question: Question, intent: Intent | None) -> Iterable[str]:
    wide = question.form == WIDE
    yield from table([row(one, intent, wide=wide) for one in judged], heads=WIDE_HEADS if wide else NARROW)
    if not judged:
        whose = f" of {question.driver}" if question.driver else ", of any CSI driver,"
        yield f"no node has volumes{whose} that it alone can reach, or could have"
    yield from (f"not known: {sentence}" for sentence in cluster.ignorance)
