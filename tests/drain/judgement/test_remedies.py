"""Whoever does what a remedy says loosens the verdict it speaks of, and no other."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment, Blocker
from sidecar.drain.vocabulary import MEANING, Intent, Reason, Status
from sidecar.model import names
from sidecar.model.nodes import SnapshotContent
from sidecar.model.objects import Notes, Volume
from tests.harness.drain import samples, worlds

_ADVICE = re.compile(rf"({re.escape(names.GROUP)}/[\w.-]+): (\w+)")

LOOSENS = {names.DRAIN_POLICY_REBOOT: Intent.REBOOT, names.DRAIN_POLICY_RETIRE: Intent.RETIRE, names.ACKNOWLEDGED: Intent.RETIRE}
"""The annotations on volumes that a remedy may advise."""


def advised(remedy: str) -> list[tuple[str, str]]:
    return [(key, word) for key, word in _ADVICE.findall(remedy) if key != names.FORCE_DRAIN]


def heeding(snapshot: Snapshot, blocker: Blocker, key: str, word: str) -> Snapshot:
    """The same with the annotation on the object that the remedy speaks of."""
    said = (key, word)
    if blocker.class_ == "Snapshot":
        return replace(snapshot, contents=tuple(_on(snapshot.contents, blocker.name, said)))
    if key == names.ACKNOWLEDGED:
        return replace(snapshot, volumes=tuple(_on(snapshot.volumes, blocker.volume, said)), void_acknowledgements=frozenset())
    if f"annotate the {names.VOLUME} with {key}" in blocker.remedy:
        return replace(snapshot, volumes=tuple(_on(snapshot.volumes, blocker.volume, said)))
    full_name = f"{blocker.namespace}/{blocker.name}"
    claim = snapshot.claims[full_name]
    return replace(snapshot, claims={**snapshot.claims, full_name: replace(claim, notes=_noted(claim.notes, said))})


def _on(objects: Iterable[Volume | SnapshotContent], name: str, said: tuple[str, str]) -> Iterator[Volume | SnapshotContent]:
    return (replace(item, notes=_noted(item.notes, said)) if item.name == name else item for item in objects)


def _noted(notes: Notes, said: tuple[str, str]) -> Notes:
    return tuple(sorted({**dict(notes), said[0]: said[1]}.items()))


def against(found: Assessment, intent: Intent) -> set[str]:
    return {blocker.key for blocker in found.blockers if intent in blocker.blocks}


def test_no_remedy_advises_a_policy_for_both_intents() -> None:
    for reason in MEANING:
        assert {key for key, _ in advised(MEANING[reason].remedy)} <= set(LOOSENS)


def test_a_remedy_helps() -> None:
    for snapshot, reason in [
        (samples.used(claims=(samples.claim(policy="Block"),)), Reason.WOULD_STRAND),
        (samples.used(), Reason.VOLUME_IN_USE),
        (samples.idle(), Reason.LAST_COPY),
        (samples.idle(claims=(samples.claim(policy="AllowIdle"),)), Reason.LAST_COPY),
        (samples.idle(volumes=(samples.volume(phase="Released"),)), Reason.RELEASE_PENDING),
        (samples.idle(volumes=(samples.volume(phase="Released", reclaim_policy="Retain"),)), Reason.RECLAIM_RETAIN),
        (samples.idle(renamed=frozenset({"pv-0"})), Reason.NODE_RENAMED),
        (samples.snapshot(contents=(samples.content(),)), Reason.SNAPSHOT_ON_NODE),
        (samples.idle(volumes=(samples.volume(policy="Block"),)), Reason.LAST_COPY),
        (samples.used(volumes=(samples.volume(policy="Block"),)), Reason.WOULD_STRAND),
        (samples.used(volumes=(samples.volume(policy="Block"),)), Reason.VOLUME_IN_USE),
        (samples.idle(volumes=(samples.volume(policy="AllowIdle"),)), Reason.LAST_COPY),
        (samples.idle(claims=()), Reason.LAST_COPY),
        (samples.idle(volumes=(samples.volume(claim="", phase="Available"),), claims=()), Reason.LAST_COPY),
    ]:
        (blocker,) = (item for item in assess(snapshot).blockers if item.reason is reason)
        ((key, word),) = advised(blocker.remedy)
        after = heeding(snapshot, blocker, key, word)
        assert reason not in {item.reason for item in assess(after).blockers}
        assert assess(after).verdict(LOOSENS[key]).status is Status.TRUE


@given(st.integers(0, 2**32))
def test_no_remedy_loosens_the_other_verdict(seed: int) -> None:
    snapshot = worlds.drawn(Random(seed))
    before = assess(snapshot)
    for blocker in before.blockers:
        for key, word in advised(blocker.remedy):
            after, (other,) = assess(heeding(snapshot, blocker, key, word)), set(Intent) - {LOOSENS[key]}
            assert LOOSENS[key] in blocker.blocks
            assert against(after, other) >= against(before, other)
            assert before.verdict(other).status is Status.TRUE or after.verdict(other).status is not Status.TRUE


def test_a_policy_of_the_volume_is_chosen_on_the_volume() -> None:
    for volume in (samples.volume(policy="Migrate"), samples.volume(claim="", phase="Available", policy="Migrate")):
        (blocker,) = assess(samples.idle(volumes=(volume,), claims=() if volume.claim is None else (samples.claim(),))).blockers
        assert "of the PersistentVolume" in blocker.remedy and "of the claim" not in blocker.remedy
    (blocker,) = assess(samples.idle(claims=(samples.claim(policy="Migrate"),))).blockers
    assert "of the claim" in blocker.remedy
