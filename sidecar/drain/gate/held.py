"""Decides which pods must not be evicted while a drain is held, and says in words that a drain is held, for what, and what to do.

The report tells it, `explain node` and an event repeat it, and where the policy of deploy/components/gate is applied the API server refuses
the evictions with these words. The gate (`rules`) holds what is not in the list: a drain that takes nothing but idle volumes along.
"""

from collections.abc import Iterable, Sequence

from sidecar.drain.facts.announcement import Source
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.stored import NOTHING_HELD, Held
from sidecar.drain.vocabulary import Intent, Status
from sidecar.drain.wording import announcing, regardless
from sidecar.model import names
from sidecar.model.nodes import Pod


def counting(signals: Signals, assumed: Intent) -> tuple[Intent, ...]:
    """The intents whose verdicts have to be True for whoever drains the node now, as for the gate (`GateView.verdict`).

    `assumed` is what the flag says of a drainer that announces nothing.
    """
    if announced := _announced(signals):
        return (announced,)
    return (Intent.REBOOT,) if signals.assumable and assumed is Intent.REBOOT else (Intent.RETIRE, Intent.REBOOT)


def held(judged: Assessment, signals: Signals, pods: Iterable[Pod], *, assumed: Intent, overridden: bool) -> Held:
    """Nothing is while nobody drains the node: whoever evicts a pod then has it back here.

    `pods` are those of the node as they are now. One may have begun since the judgement, with a claim that was judged.
    """
    if not signals.draining:
        return NOTHING_HELD
    intents, announced = counting(signals, assumed), _announced(signals)
    purpose = f"{announced}, {signals.source}" if announced else f"{intents[0]}, assumed"
    withheld = [intent for status in (Status.FALSE, Status.UNKNOWN) for intent in intents if judged.verdict(intent).status is status]
    if overridden or not withheld:
        return Held(purpose=purpose)
    return Held(_pods(judged, intents, pods), _because(judged, signals, withheld[0]), purpose)


def _announced(signals: Signals) -> Intent | None:
    """A cordon announces nothing, whatever it is taken for."""
    return None if signals.source is Source.CORDON else signals.intent


def _pods(judged: Assessment, intents: Sequence[Intent], pods: Iterable[Pod]) -> tuple[str, ...]:
    """Those with a volume that blocks. A pod that blocks by itself, as one that no budget lets go, is refused or ended by others."""
    against = (blocker for blocker in judged.blockers if blocker.kind != names.POD and not set(intents).isdisjoint(blocker.blocks))
    blocking = {blocker.volume for blocker in against} - {""}
    claims = {volume.claim for volume in judged.volumes if volume.name in blocking} - {""}
    evicted = (pod for pod in pods if not (pod.stays or pod.ended or pod.deleting_since))
    return tuple(sorted(pod.full_name for pod in evicted if not claims.isdisjoint(pod.claim_names)))


def _because(judged: Assessment, signals: Signals, intent: Intent) -> str:
    """`intent`: of which the verdict is withheld."""
    node, verdict = signals.node, judged.verdict(intent)
    said = f"{intent} is announced ({signals.source})" if _announced(signals) else _nobody_says(node, intent)
    said = f"{judged.driver} holds the drain of node {node}: {said}, and {verdict.reason} ({verdict.message})"
    return f"{said}; what blocks, and what to do: csi-node-sidecar explain node {node}; {regardless(node)}"


def _nobody_says(node: str, intent: Intent) -> str:
    return f"nobody announced what it is for, so {intent} is assumed (run {announcing(node)})"
