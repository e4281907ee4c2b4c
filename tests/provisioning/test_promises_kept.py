"""What is kept of promises beside a walk over all claims, whatever comes, goes and changes."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sidecar.kube.api import Change
from sidecar.local.caches import Caches
from sidecar.model.objects import Claim
from sidecar.ownership.promises import Promise
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.ownership.rules import Race
from sidecar.provisioning.progress import NOT_BEGUN, Bidding, Creating, HandedBack, Racing, Stored, Unsaved
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.provisioning.promises import Promises
from tests.harness import samples

SHORT = ("aaaaa1", "aaaaa2", "bbbbb1")
"""The names of the first two claims' volumes are cut to one."""
UIDS = st.sampled_from(SHORT)
CLAIMS = st.builds(
    lambda node, volume, size, namespace, class_name: replace(
        samples.claim(), selected_node=node, volume_name=volume, requested=size, namespace=namespace, class_name=class_name
    ),
    st.sampled_from([samples.NODE, samples.NODE, "other", ""]),
    st.sampled_from(["", "", "made"]),
    st.sampled_from([1, 2, 2, 0, -1, None]),
    st.sampled_from("xy"),
    st.sampled_from("ab"),
)


class KeptBesideWalk(RuleBasedStateMachine):
    @initialize(short=st.booleans())
    def start(self, short: bool) -> None:
        self.here = samples.here(volume_name_uuid_length=5 if short else -1)
        self.caches, self.table = Caches.empty(), ProgressTable()
        self.space = ReservedSpace(classes=dict)
        self.promises = Promises(here=lambda: self.here, caches=self.caches, table=self.table, space=self.space)

    @rule(uid=UIDS, claim=CLAIMS)
    def claim_is_seen(self, uid: str, claim: Claim) -> None:
        self.caches.claims.apply(Change(uid, None, replace(claim, uid=uid)))

    @rule(kept=st.sets(UIDS))
    def claims_are_listed_anew(self, kept: set[str]) -> None:
        for uid in self.caches.claims.missing(kept):
            self.caches.claims.apply(Change(uid, None, None))

    @rule(uid=UIDS, there=st.booleans())
    def volume_comes_or_goes(self, uid: str, there: bool) -> None:
        name = self.here.volume_name(uid)
        self.caches.volumes.apply(Change(name, None, samples.volume(meta={"name": name}) if there else None))

    @rule(uid=UIDS, claim=CLAIMS, kind=st.integers(0, 6))
    def progress_is_made(self, uid: str, claim: Claim, kind: int) -> None:
        claim = replace(claim, uid=uid)
        race = Race(1, 1000.0)
        progress = (
            NOT_BEGUN,
            Racing(race),
            Bidding(claim, race),
            Creating(claim),
            Unsaved.of(claim, samples.PACKED),
            HandedBack("7", Creating(claim)),
            Stored.at(100.0, "handle"),
        )[kind]
        self.table.advance(uid, progress)

    @rule(uid=UIDS, hopeless=st.booleans(), failures=st.integers(0, 4))
    def something_is_learnt(self, uid: str, hopeless: bool, failures: int) -> None:
        self.table.learn(uid, replace(self.table.findings(uid), hopeless=hopeless, failures=failures))

    @rule(uid=UIDS)
    def claim_is_forgotten(self, uid: str) -> None:
        self.table.forget(uid)

    @rule(uid=UIDS)
    def doubt_is_settled(self, uid: str) -> None:
        self.table.doubt(uid)
        self.table.settle_doubt(uid)

    @invariant()
    def kept_as_walked(self) -> None:
        mine = {claim.uid: claim for claim in self.caches.claims.by_index("node", samples.NODE) if not claim.volume_name}
        pending = {uid: claim for uid in SHORT if (claim := self.table.pending_of(uid)) is not None}
        wanted = {
            uid: Promise(claim.class_name, claim.requested, claim.namespace)
            for uid, claim in {**pending, **mine}.items()
            if claim.requested and claim.requested > 0
            if self.table.takes_space(uid) and self.here.volume_name(uid) not in self.caches.volumes
        }
        assert self.space.promises.by_claim == wanted
        assert {uid: self.promises.of(uid) for uid in wanted} == wanted

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        self.claims_are_listed_anew(set())
        for uid in SHORT:
            self.table.forget(uid)
        assert not self.promises._names and not self.promises._claims and not self.space.promises.by_claim


KeptBesideWalk.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestKeptBesideWalk = KeptBesideWalk.TestCase
