"""Which replicas come into question, what is stored of one, and what is read of it at the last moment."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds import TABLE, Kind
from sidecar.drain import leases
from sidecar.drain.leases import Lease
from sidecar.drain.reprovision import candidates, record
from sidecar.drain.reprovision.candidates import Candidate, Refused
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Name
from sidecar.drain.reprovision.marks import Words, read
from sidecar.drain.reprovision.record import MOST_CLAIMS, Record, Stage
from sidecar.drain.vocabulary import Hindrance
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Owner
from tests.harness.drain import samples
from tests.harness.drain.replica import ME, TAINTED, target
from tests.harness.drain.reprovision import Seen, Workload, evacuate, play
from tests.harness.drain.samples import DRIVER
from tests.harness.drain.simulated import Bench, wait

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
    texts = ["", "{", "null", "[]", "7", '"x"', "{}", "[" * 100_000, "9" * 20_000]
    claims: list[Any] = [[], {}, ["data"], [{"name": "data"}], [{"name": "data", "uid": ""}], [{"name": "data", "uid": "u"}] * 33]
    wrong: dict[str, list[Any]] = {"stage": ["Deleted", None, ...], "pod": ["", 7, ...], "workload": [None], "claims": claims}
    wrong |= {"at": ["now", True, float("nan")], "begunAt": [float("inf"), None], "workloadUID": ["uid-of-another"]}
    for text in (*texts, *(said(**{key: value}) for key, values in wrong.items() for value in values)):
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


# --- What is read of one replica, from the API server itself ---


CONTENTS = Kind(resource=SNAPSHOT_CONTENTS, fields={"spec": dict, "status": dict}, status=True)
KINDS = (*TABLE, CONTENTS)


def snapshots(*handles: str, kinds: tuple[Kind, ...] = KINDS) -> list[str]:
    cluster = Cluster(clock=lambda: 0.0, rng=random.Random(1).random, kinds=kinds)
    if CONTENTS in kinds:
        for name, driver, handle in (("a", "d", "one"), ("b", "d", "two"), ("c", "other", "one"), ("d", "d", "")):
            source = {"volumeHandle": handle} if handle else {"snapshotHandle": "s"}
            cluster.create(SNAPSHOT_CONTENTS, {"metadata": {"name": name}, "spec": {"driver": driver, "source": source}})
    found = asyncio.run(Reading(InProcessApi(cluster), "n1", driver="d").snapshots(frozenset(handles)))
    return [content.name for content in found]


def test_snapshots_of_a_volume_are_found_whosever_node_they_are_labelled_with() -> None:
    assert snapshots("one") == ["a"]
    assert snapshots("one", "two") == ["a", "b"]
    assert snapshots("three") == []


def test_where_there_are_no_snapshots_there_is_none_of_a_volume() -> None:
    assert snapshots("one", kinds=TABLE) == []


# --- The locks, as a process looks at them: at the last moment, by what the API server says and not by what watches have shown ---


def change_claim(cluster: Cluster, change: dict[str, Any]) -> None:
    cluster.patch(CLAIMS, "data-db-0", change, namespace="default", content_type=MERGE_PATCH)


def change_set(cluster: Cluster, change: dict[str, Any], subresource: str = "") -> None:
    cluster.patch(STATEFUL_SETS, "db", change, namespace="default", subresource=subresource, content_type=MERGE_PATCH)


def roll_out(cluster: Cluster) -> None:
    """By hand: such a rollout waits for no pod."""
    change_set(cluster, {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    generation = cluster.get(STATEFUL_SETS, "db", namespace="default").obj["metadata"].get("generation", 1)
    change_set(cluster, {"status": {"updateRevision": "db-2", "observedGeneration": generation}}, "status")


def volume_of(cluster: Cluster) -> str:
    return str(cluster.get(CLAIMS, "data-db-0", namespace="default").obj["spec"]["volumeName"])


def another_pod(cluster: Cluster) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeName": "n0"}
    cluster.create(PODS, {"metadata": {"name": "job"}, "spec": spec}, namespace="default")


NOT_READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
BLOCK: Final = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Block"}}}
SHUT_AT_LAST: Final[dict[Name, Callable[[Cluster], object]]] = {
    Name.SAME: lambda cluster: cluster.delete(CLAIMS, "data-db-0", namespace="default"),
    Name.POLICY: lambda cluster: cluster.patch(VOLUMES, volume_of(cluster), BLOCK, content_type=MERGE_PATCH),
    Name.MARKS: lambda cluster: change_claim(cluster, {"metadata": {"annotations": {names.REPROVISIONED_BY: "n9/uid-n9"}}}),
    Name.MADE_AGAIN: lambda cluster: change_set(cluster, {"spec": {"replicas": 0}}),
    Name.REPLICAS: lambda cluster: cluster.patch(
        PODS, "db-2", NOT_READY, namespace="default", subresource="status", content_type=MERGE_PATCH
    ),
    Name.NOT_ROLLING: roll_out,
    Name.KEPT_OFF: lambda cluster: change_set(cluster, {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}),
    Name.FINALIZERS: lambda cluster: change_claim(cluster, {"metadata": {"finalizers": [names.CLAIM_PROTECTION, "example.com/backup"]}}),
    Name.NOBODY_ELSE: another_pod,
}
"""How each lock is shut while no watch shows it. The others are about the node, which is read anew, and about places."""


def test_a_lock_that_is_shut_at_the_last_moment_is_seen_whatever_the_watches_show() -> None:
    def case(lock: Name | None) -> None:
        seen = Seen()

        async def story(bench: Bench, _: Workload) -> None:
            def shut() -> None:
                bench.network.local_delay("n0", 600.0)
                if lock is not None:
                    SHUT_AT_LAST[lock](bench.cluster)

            seen.at("evict db-0", shut, after=True)
            await evacuate(bench)
            await wait(bench, 60)
            assert "evict db-0" in seen.did
            assert ("delete data-db-0" in seen.did) is (lock is None)

        play(story, seen)

    for lock in [None, *SHUT_AT_LAST]:
        case(lock)
