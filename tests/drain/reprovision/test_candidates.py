"""Which pods' volumes are to be made anew, and which pods are not even looked at."""

from collections.abc import Sequence

from sidecar.drain import leases
from sidecar.drain.reprovision import candidates, record
from sidecar.drain.reprovision.candidates import Candidate, Refused
from sidecar.drain.reprovision.record import MOST_CLAIMS, Record, Stage
from sidecar.drain.vocabulary import Hindrance
from sidecar.model.objects import Owner
from tests.drain.reprovision.scenes import TAINTED
from tests.harness.drain import samples


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
