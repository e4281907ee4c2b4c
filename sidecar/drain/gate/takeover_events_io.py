"""Events on a Node about its gate, from the sidecar of another node that looks after it. Each is told once as long as it stays the same."""

from typing import Final

from sidecar.drain.gate.takeover import GateFacts
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import Recorder
from sidecar.model import names

_STOPPED: Final = "the sidecar of this node gives no sign of life"
_OPEN: Final = "open"


class TakeoverEvents:
    """One per process."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        self._recorder = recorder
        self._driver = settings.driver
        self._told: dict[str, str] = {}
        """By uid of the node: the reason for which its gate stays, or that it is open."""

    def opened(self, facts: GateFacts, why: str) -> None:
        if self._is_news(facts, _OPEN):
            self._tell(facts, names.NORMAL, names.DRAIN_LET_GO, f"{why} ({_STOPPED}, so the sidecar of another node has opened its gate)")

    def found_open(self, facts: GateFacts) -> None:
        """Its own sidecar opened it before it died, or somebody has deleted it."""
        if self._is_news(facts, _OPEN):
            nobody = "its gate is open, and nobody shuts it again or looks what blocks until the sidecar of this node runs"
            self._tell(facts, names.WARNING, names.DRAIN_LET_GO, f"{Reason.AGENT_UNAVAILABLE}: {_STOPPED}; {nobody}")

    def kept(self, facts: GateFacts, why: str) -> bool:
        """Whether that is news."""
        if not self._is_news(facts, why):
            return False
        remedy = f"to let the node be drained regardless, annotate it with {names.FORCE_DRAIN}: WHY"
        silent = f"{Reason.AGENT_UNAVAILABLE}: {_STOPPED}"
        self._tell(facts, names.WARNING, names.DRAIN_HELD, f"{silent}, and its gate stays: {why}; {remedy}")
        return True

    def forget(self, node_uid: str) -> None:
        """The node's own sidecar is back: what happens after that is news again."""
        self._told.pop(node_uid, None)

    def _is_news(self, facts: GateFacts, told: str) -> bool:
        before = self._told.get(facts.lease.node_uid)
        self._told[facts.lease.node_uid] = told
        return before != told

    def _tell(self, facts: GateFacts, type_: str, reason: str, message: str) -> None:
        if facts.node is not None:
            ref = ObjectRef("v1", names.NODE, "", facts.node.name, facts.node.uid)
            self._recorder.record(ref, type_, reason, f"{self._driver}: {message}")
