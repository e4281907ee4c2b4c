"""An acknowledgement counts for the use it was given for, and for no later one."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement import acknowledged
from sidecar.drain.judgement.acknowledged import Acknowledged, Acknowledgement, acknowledgement_of, remember, void_now
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import report, stored
from sidecar.drain.vocabulary import Reason, Status
from sidecar.model.objects import ClaimRef, Json
from tests.harness.drain import samples

PV = samples.volume(notes=samples.notes(ack="ann, 11-23"))
POD = samples.pod("db-0", "data-0")


class Looks:
    """One judgement after the other, each knowing of the earlier ones what the stored report says."""

    def __init__(self) -> None:
        self.report: Json | None = None

    def at(self, snapshot: Snapshot) -> Assessment:
        assert snapshot.node
        void = stored.void_acknowledgements(self.report, snapshot.volumes, node_uid=snapshot.node.uid)
        found = assess(replace(snapshot, void_acknowledgements=void))
        self.report = report.body(found, previous=self.report, agent="1.0")
        return found

    @property
    def remembered(self) -> list[Json]:
        assert self.report
        return list(self.report["status"]["acknowledgements"])


def idle(**changes: Any) -> Snapshot:
    return samples.idle(**{"volumes": (PV,)} | changes)


def test_an_acknowledgement_is_believed_until_the_volume_is_used_again() -> None:
    looks = Looks()
    assert looks.at(idle()).retire.status is Status.TRUE
    assert looks.at(idle()).retire.status is Status.TRUE
    assert looks.at(idle(pods=(POD,))).retire.reason is Reason.VOLUME_IN_USE
    found = looks.at(idle())
    assert (found.retire.status, found.retire.reason) == (Status.FALSE, Reason.LAST_COPY)
    assert [note for note in found.notes if "void" in note] == [
        "the annotation csi-node-sidecar.io/ack is void, because the volume was used when it was written, or since, or may have been used "
        "while the sidecar was away; to renew it, change its text (WHO, DATE) while no pod uses the volume: pv-0"
    ]
    assert looks.at(idle()).retire.reason is Reason.LAST_COPY


def test_another_text_is_another_acknowledgement() -> None:
    looks = Looks()
    for snapshot in (idle(), idle(pods=(POD,)), idle()):
        looks.at(snapshot)
    renewed = idle(volumes=(replace(PV, notes=samples.notes(ack="bob, 11-24")),))
    assert looks.at(renewed).retire.status is Status.TRUE
    assert [entry["void"] for entry in looks.remembered] == [False]


@pytest.mark.parametrize(
    "use",
    [
        {"pods": (POD,)},
        {"claimants": (replace(POD, node="", phase="Pending"),)},
        {"attached": frozenset({"pv-0"})},
        {"lately_used": frozenset({"apps/data-0"}), "lately_named": frozenset({"apps/data-0"})},
    ],
)
def test_any_use_ends_it(use: dict[str, Any]) -> None:
    looks = Looks()
    for snapshot in (idle(), idle(**use), idle()):
        found = looks.at(snapshot)
    assert found.retire.reason is Reason.LAST_COPY


def test_a_new_process_that_does_not_know_who_used_the_volume_ends_nothing() -> None:
    looks, unsure = Looks(), idle(lately_used=frozenset({"apps/data-0"}))
    looks.at(idle())
    assert looks.at(unsure).retire.reason is Reason.VOLUME_IN_USE
    assert looks.at(idle()).retire.status is Status.TRUE
    assert looks.at(idle(pods=(POD,))).retire.reason is Reason.VOLUME_IN_USE
    assert looks.at(idle()).retire.reason is Reason.LAST_COPY


def test_one_that_is_written_while_a_pod_runs_with_the_volume_never_counts() -> None:
    looks = Looks()
    for snapshot in (idle(pods=(POD,)), idle()):
        found = looks.at(snapshot)
    assert found.retire.reason is Reason.LAST_COPY


LINGERS: list[dict[str, Any]] = [
    {"lately_used": frozenset({"apps/data-0"}), "lately_named": frozenset({"apps/data-0"})},
    {"attached": frozenset({"pv-0"})},
    {"claimants": (replace(POD, node="", phase="Pending"),)},
]


@pytest.mark.parametrize("lingers", LINGERS)
def test_one_that_is_written_when_the_pod_has_just_gone_counts_until_the_next_one_runs(lingers: dict[str, Any]) -> None:
    looks = Looks()
    for _ in range(2):
        assert looks.at(idle(**lingers)).retire.reason is Reason.VOLUME_IN_USE
    assert looks.at(idle()).retire.status is Status.TRUE
    back = Looks()
    for snapshot in (idle(**lingers), idle(pods=(POD,)), idle()):
        found = back.at(snapshot)
    assert found.retire.reason is Reason.LAST_COPY


def test_another_claim_is_another_use_even_if_nobody_saw_its_pods() -> None:
    kept = replace(PV, phase="Released", reclaim_policy="Retain")
    looks = Looks()
    assert looks.at(idle(volumes=(kept,), claims=())).retire.status is Status.TRUE
    unbound = replace(kept, phase="Available", claim=None)
    assert looks.at(idle(volumes=(unbound,), claims=())).retire.status is Status.TRUE
    bound = replace(PV, claim=ClaimRef("uid-of-the-next", "apps", "data-0"))
    claims = (samples.claim(uid="uid-of-the-next"),)
    for _ in range(2):
        assert looks.at(idle(volumes=(bound,), claims=claims)).retire.reason is Reason.LAST_COPY


def test_the_stored_report_alone_is_the_memory() -> None:
    """After a restart, and for whoever asks from outside."""
    looks = Looks()
    for snapshot in (idle(), idle(pods=(POD,))):
        looks.at(snapshot)
    again = Looks()
    again.report = looks.report
    assert again.at(idle()).retire.reason is Reason.LAST_COPY
    assert stored.void_acknowledgements(looks.report, (PV,), node_uid="uid-n1") == {"uid-pv-0"}
    assert stored.void_acknowledgements(looks.report, (PV,), node_uid="uid-of-the-next") == frozenset()
    assert stored.void_acknowledgements(None, (PV,), node_uid="uid-n1") == frozenset()


@pytest.mark.parametrize(("away", "void"), [(410.0, False), (430.0, True)])
def test_after_a_long_absence_of_the_sidecar_nobody_knows_who_used_the_volume(away: float, void: bool) -> None:
    looks = Looks()
    looks.at(idle())
    found = stored.void_acknowledgements(looks.report, (PV,), node_uid="uid-n1", now=samples.NOW + away)
    assert bool(found) is void


def test_what_is_not_seen_is_remembered_until_all_is_seen() -> None:
    looks = Looks()
    for snapshot in (idle(), idle(pods=(POD,)), idle(volumes=(), claims=(), ignorance=("the volumes could not be listed",))):
        looks.at(snapshot)
    assert [entry["void"] for entry in looks.remembered] == [True]
    looks.at(idle(volumes=(), claims=()))
    assert looks.remembered == []


def test_an_entry_that_somebody_edited_counts_as_void() -> None:
    looks = Looks()
    looks.at(idle())
    for word in (None, "false", 0, {}):
        assert looks.report
        looks.report["status"]["acknowledgements"][0]["void"] = word
        assert stored.void_acknowledgements(looks.report, (PV,), node_uid="uid-n1") == {"uid-pv-0"}


def test_no_more_are_believed_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.drain.judgement.volumes.MOST", 2)
    volumes = tuple(samples.volume(f"pv-{number}", f"data-{number}", notes=PV.notes) for number in range(3))
    found = assess(samples.snapshot(volumes=volumes))
    assert [blocker.volume for blocker in found.blockers] == ["pv-2"]


def test_what_is_void_is_the_last_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged, "MOST", 1)
    before = [Acknowledgement(f"uid-{number}", "d", "", void=number > 7) for number in range(10)]
    assert [item.uid for item in remember(before, (), complete=False)] == ["uid-8", "uid-9"]


def test_a_volume_without_the_annotation_has_none() -> None:
    for ack in (None, "", " \n"):
        assert acknowledgement_of(samples.volume(notes=samples.notes(ack=ack))) is None


@given(st.lists(st.tuples(st.sampled_from(["runs", "lingers", "rests", "unknown"]), st.sampled_from(["ann", "bob"])), max_size=8))
def test_no_history_makes_a_text_count_that_was_there_while_a_pod_ran(history: list[tuple[str, str]]) -> None:
    """Nor after it: the same text counts again only if another one stood there in between."""
    memory: tuple[Acknowledgement, ...] = ()
    standing, spent = "", False
    for use, text in history:
        volume = replace(PV, notes=samples.notes(ack=text))
        given = acknowledgement_of(volume)
        assert given
        void = bool(void_now(memory, (volume,)))
        standing, spent = text, spent and text == standing
        assert void or not spent
        found = Acknowledged(replace(given, void=void), runs=use == "runs", used=use in ("runs", "lingers"), at_rest=use == "rests")
        memory = remember(memory, (found,), complete=True)
        spent = spent or use == "runs"
