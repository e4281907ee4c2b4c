"""The rooms of drain, broken on purpose as they once were: what each mutation does, and which trouble brings it to light."""

from dataclasses import replace
from typing import Any, Final

import pytest

from hack.sim.drains.drain_world import NEVER_YES
from hack.sim.drains.noted import WRONG_NOTE
from hack.sim.drains.referee import DATA_LOST, LET_GO, NO_GATE, SAID_YES
from hack.sim.world.doors import NodeLastServed
from sidecar.drain.facts import assembly, lookups, node_marks, reboot_note
from sidecar.drain.facts.kured_note import KuredNote
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.gate import guard, rules
from sidecar.drain.judgement.use import Use, Users
from sidecar.drain.notes import rules as notes_rules
from sidecar.drain.notes.controller import Notes
from sidecar.drain.publish import stored
from sidecar.drain.publish.withdrawal_io import Withdrawal
from tests.world.mutations import Mutation

Patch = pytest.MonkeyPatch

LOSING: Final = frozenset({SAID_YES, LET_GO, NO_GATE, DATA_LOST})
WAITING: Final = frozenset({NEVER_YES})
NOTING: Final = frozenset({WRONG_NOTE})


def _only_pods_here(patch: Patch) -> None:
    patch.setattr(Use, "__bool__", lambda self: bool(self.pods))


def _mounts_do_not_count(patch: Patch) -> None:
    def holds(self: Any, volume: Any) -> bool:
        return self._has(volume) or self.holds_by_label(volume)

    patch.setattr(VolumeLocator, "holds", holds)
    patch.setattr(VolumeLocator, "_has", lambda self, volume: False)


def _shared_by_two_is_nobody_s(patch: Patch) -> None:
    def holds(self: Any, volume: Any, *, real: Any = VolumeLocator.holds) -> bool:
        return not self.is_shared(volume) and bool(real(self, volume))

    patch.setattr(VolumeLocator, "holds", holds)


def _labels_outrank_the_driver(patch: Patch) -> None:
    patch.setattr(VolumeLocator, "_has", lambda self, volume: False)


def _unplaced_snapshots_do_not_count(patch: Patch) -> None:
    async def nothing(self: Any, *given: Any) -> tuple[()]:
        return ()

    patch.setattr(Lookups, "_unplaced", nothing)


def _old_words_stay(patch: Patch) -> None:
    async def nothing(self: Any) -> None:
        pass

    patch.setattr(Withdrawal, "run", nothing)


def _nobody_remembers_the_driver(patch: Patch) -> None:
    async def nothing(self: Any) -> str:
        return ""

    patch.setattr(NodeLastServed, "read", nothing)


def _no_gate_in_peace(patch: Patch) -> None:
    patch.setattr(rules.GateView, "guards_in_peace", property(lambda self: False))


def _a_reboot_needs_no_cordon(patch: Patch) -> None:
    patch.setattr(node_marks, "_counting", lambda said, *, cordoned: said.intent)


def _a_reboot_never_ends(patch: Patch) -> None:
    def followed(known: Any, *, declared: Any, cordoned: bool) -> Any:
        return reboot_note.RebootNote.IN_EFFECT if declared is not None and cordoned else None

    patch.setattr(reboot_note, "followed", followed)


def _kureds_word_never_ends(patch: Patch) -> None:
    patch.setattr(KuredNote, "counts", property(lambda self: self.value is not None))


def _the_guard_leaves_silent_nodes(patch: Patch) -> None:
    patch.setattr(guard, "OF_SILENCE", ())


def _owned_by_a_pod_is_ephemeral(patch: Patch) -> None:
    patch.setattr(Users, "asks_for", lambda self, claim: claim.owner is not None and claim.owner.kind == "Pod")


def _acknowledged_for_ever(patch: Patch) -> None:
    patch.setattr(stored, "void_now", lambda remembered, volumes: frozenset())


def _named_is_in_flight(patch: Patch) -> None:
    patch.setattr(assembly, "could_succeed", lambda claim, class_: True)
    patch.setattr(assembly, "_has_waited", lambda claim, facts, now: 0.0)


def _orphans_count_everywhere(patch: Patch) -> None:
    def may_be_meant(self: Any, term: Any) -> bool:
        return self._node is not None and bool(term.may_match(self._node.name, self._node.labels))

    patch.setattr(VolumeLocator, "_may_be_meant", may_be_meant)


def _every_tenant_is_heeded(patch: Patch) -> None:
    patch.setattr(lookups, "namespace_is_heeded", lambda namespace, heeded: True)


def _whatever_is_heard_of_lies_here(patch: Patch) -> None:
    patch.setattr(notes_rules, "_names_alone", lambda volume, node: True)


def _a_cordon_says_that_the_node_goes(patch: Patch) -> None:
    def view(self: Any, *, real: Any = Notes._view) -> Any:
        found, signals = real(self), self._signals()
        return found and replace(found, leaving=signals.observed)

    async def asked(self: Any, machine: Any) -> bool:
        return True

    patch.setattr(Notes, "_view", view)
    patch.setattr(Notes, "_is_leaving", asked)


DRAIN_MUTATIONS = (
    Mutation("only pods with a node are seen", _only_pods_here, LOSING),
    Mutation("what a pod mounts here is taken to lie elsewhere", _mounts_do_not_count, LOSING),
    Mutation("a volume that two nodes reach counts for neither", _shared_by_two_is_nobody_s, LOSING),
    Mutation("labels outrank the driver's own list", _labels_outrank_the_driver, LOSING),
    Mutation("a snapshot without a place counts nowhere", _unplaced_snapshots_do_not_count, LOSING),
    Mutation("what an earlier process said stays at the start", _old_words_stay, LOSING),
    Mutation("what an earlier process said stays while the driver is dead", _nobody_remembers_the_driver, LOSING),
    Mutation("no gate stands in peace", _no_gate_in_peace, LOSING),
    Mutation("an announced reboot needs no cordon", _a_reboot_needs_no_cordon, LOSING),
    Mutation("an announced reboot does not end with the uncordon", _a_reboot_never_ends, LOSING),
    Mutation("what kured leaves behind counts at every cordon", _kureds_word_never_ends, LOSING),
    Mutation("the guard leaves a node that does not answer", _the_guard_leaves_silent_nodes, LOSING),
    Mutation("a claim that a pod owns is taken for an ephemeral volume", _owned_by_a_pod_is_ephemeral, LOSING),
    Mutation("an acknowledgement is never void", _acknowledged_for_ever, LOSING),
    Mutation("every volume that is heard of is noted as lying here", _whatever_is_heard_of_lies_here, NOTING),
    Mutation("a cordon is noted as the node's leaving", _a_cordon_says_that_the_node_goes, NOTING),
    Mutation("whatever names this node is a creation under way", _named_is_in_flight, WAITING),
    Mutation("tenants hold up nodes though they may not", _every_tenant_is_heeded, WAITING),
    Mutation("a volume whose label no node has counts on all of them", _orphans_count_everywhere, WAITING),
)
