"""What is stored of a replica that is made anew, and what of it is believed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sidecar.drain import leases
from sidecar.drain.leases import Lease
from sidecar.drain.reprovision import candidates, record
from sidecar.drain.reprovision.candidates import Candidate, Refused
from sidecar.drain.reprovision.marks import Words, read
from sidecar.drain.reprovision.record import MOST_CLAIMS, Record, Stage
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from sidecar.model.objects import Owner
from tests.drain.reprovision.scenes import ME, TAINTED, target
from tests.harness.drain import samples
from tests.harness.drain.samples import DRIVER

RECORD = Record(target(), Stage.EVICTING, 1000.0, 1001.5)


def lease(text: Any = None, **changes: Any) -> Lease:
    terms = record.terms(RECORD.target, RECORD, driver=DRIVER, namespace="kube-system", node=ME.node, node_uid=ME.uid)
    stored = Lease.of(leases.body(terms, now=5.0))
    annotations = stored.annotations if text is None else {names.REPROVISION_RECORD: text}
    return replace(stored, annotations=annotations, **changes)


def test_what_is_written_is_read_again() -> None:
    stored = lease()
    assert record.of(stored, driver=DRIVER) == RECORD
    assert (stored.holder, stored.labels) == (f"uid-n1/{DRIVER}", {names.REPROVISION_FOR: DRIVER})
    assert stored.name == names.reprovision("uid-db", DRIVER)


def said(**changes: Any) -> str:
    whole = json.loads(record.annotations(RECORD)[names.REPROVISION_RECORD])
    return json.dumps({key: value for key, value in (whole | changes).items() if value is not ...})


def test_garbage_is_no_record() -> None:
    for text in [
        "",
        "{",
        "null",
        "[]",
        "7",
        '"x"',
        "{}",
        "[" * 100_000,
        "9" * 20_000,
        said(stage="Deleted"),
        said(stage=None),
        said(stage=...),
        said(pod=""),
        said(pod=7),
        said(pod=...),
        said(workload=None),
        said(claims=[]),
        said(claims={}),
        said(claims=["data"]),
        said(claims=[{"name": "data"}]),
        said(claims=[{"name": "data", "uid": ""}]),
        said(claims=[{"name": "data", "uid": "u"}] * 33),
        said(at="now"),
        said(at=True),
        said(at=float("nan")),
        said(begunAt=float("inf")),
        said(begunAt=None),
        said(workloadUID="uid-of-another"),
    ]:
        assert record.of(lease(text), driver=DRIVER) is None


def test_a_record_under_another_name_or_for_another_driver_is_none() -> None:
    assert record.of(lease(name="reprovision-other"), driver=DRIVER) is None
    assert record.of(lease(), driver="other.example.com") is None
    assert record.of(replace(lease(), annotations={}), driver=DRIVER) is None


def test_words_on_claims() -> None:
    for notes, words in [
        ({}, Words()),
        ({names.ALLOW_CLAIM_DELETION: "true"}, Words(may_be_deleted=True)),
        ({names.ALLOW_CLAIM_DELETION: "false"}, Words()),
        ({names.REPROVISION_PEERS: "2"}, Words(peers=2)),
        ({names.REPROVISIONED_BY: "n1/uid-n1"}, Words(marked_by=ME)),
    ]:
        assert read(tuple(notes.items())) == words


def test_words_that_nobody_should_have_written_are_a_problem_and_nothing_else() -> None:
    wrong: dict[str, tuple[str, ...]] = {
        names.ALLOW_CLAIM_DELETION: ("", "True", "1", "yes", "true "),
        names.REPROVISION_PEERS: ("", "0", "-1", "+1", " 1", "1.0", "٣", "10000", "many"),
        names.REPROVISIONED_BY: ("", "n1", "/", "n1/", "/uid", "n1/uid/more", "n 1/uid", "x" * 9000),
        names.LOST_WITH: ("", "n1/uid-n1"),
    }
    for key, text in ((key, text) for key, texts in wrong.items() for text in texts):
        words = read(((key, text),))
        assert words.problem.startswith(f"the claim's annotation {key} is ")
        assert len(words.problem) < 200
        assert replace(words, problem="") == Words()


# --- Which pods' volumes are to be made anew, and which pods are not even looked at ---


def found(count: int = 1, owner: Owner | None = None) -> tuple[Sequence[Candidate], Sequence[Refused]]:
    """Of one pod here that uses so many claims which are to be made anew."""
    each = [(f"pv-{number}", f"c{number:03}-{'x' * 200}-db-0") for number in range(count)]
    snapshot = samples.snapshot(
        node=TAINTED,
        volumes=tuple(samples.volume(name, claim) for name, claim in each),
        claims=tuple(samples.claim(claim, policy="Reprovision", volume_name=name) for name, claim in each),
        pods=(samples.pod("db-0", *(claim for _, claim in each), owner=samples.owner() if owner is None else owner),),
    )
    return candidates.find(snapshot)


def test_a_record_of_all_claims_of_a_candidate_can_be_read_again() -> None:
    for count in [1, MOST_CLAIMS]:
        (candidate,), refused = found(count)
        assert not refused
        written = Record(candidate.target, Stage.TAKEN, 1.0, 2.0)
        terms = record.terms(candidate.target, written, driver=samples.DRIVER, namespace="kube-system", node="n1", node_uid="uid-n1")
        stored = leases.Lease.of(leases.body(terms, now=1.0))
        assert record.of(stored, driver=samples.DRIVER) == written


def test_a_pod_with_more_claims_than_a_record_has_is_none() -> None:
    """A record that nobody can read would stop all others of the node."""
    candidates_found, (refused,) = found(MOST_CLAIMS + 1)
    assert not candidates_found
    assert refused.hindrance is Hindrance.TOO_MANY_CLAIMS


def test_a_pod_that_is_no_stateful_sets_is_none() -> None:
    for owner in (samples.owner("ReplicaSet"), Owner("example.com/v1", "StatefulSet", "db", "uid-db")):
        assert [each.hindrance for each in found(owner=owner)[1]] == [Hindrance.OWNER_NOT_SUPPORTED]
