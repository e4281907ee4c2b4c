"""The rule for deleting data, as a table: for each reason every answer that the API server may give."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from sidecar.deletion.rules import (
    NOT_ASKED,
    Delete,
    DeletionView,
    Fact,
    Found,
    Keep,
    Need,
    OnFile,
    Orphaned,
    Released,
    Undone,
    may_delete,
)
from sidecar.model.objects import Claim, Volume
from tests.harness import samples

NODE, UID, NAME = "foo", "testid", "test-testi"
VOLUME: Volume = samples.volume()
CHANGED = replace(VOLUME, resource_version="later")
NAMESAKE = replace(VOLUME, uid="another")
OTHER = replace(VOLUME, name="other")
NOBODYS = replace(VOLUME, claim=None)
OURS: Claim = samples.claim(selected=NODE)
ANOTHERS = samples.claim(selected="bar")
GIVEN_BACK = samples.claim()
BOUND = samples.claim(selected=NODE, volumeName=NAME)
BOUND_TO_OTHER = samples.claim(selected=NODE, volumeName="other")
NEW_CLAIM = samples.claim(selected=NODE, meta={"uid": "another"})


def orphan(*, inherited: bool = False, policy: str = "Delete") -> Orphaned:
    return Orphaned(NODE, UID, NAME, policy, inherited)


# who has the handle: (what the API server shows, whether the driver says that the volume is on another node) -> the one that counts
USERS: list[tuple[tuple[Found, ...], bool, str]] = [
    ((), False, ""),
    ((), True, ""),
    ((Found(OTHER),), False, "other"),
    ((Found(OTHER),), True, "other"),
    ((Found(OTHER, elsewhere=True),), False, ""),
    ((Found(OTHER, elsewhere=True),), True, "other"),
    ((Found(replace(OTHER, affinity=None)),), False, "other"),
    ((Found(replace(OTHER, affinity=None), elsewhere=True),), False, "other"),
    ((Found(replace(OTHER, phase="Released")),), False, "other"),
    ((Found(replace(OTHER, deleting=True)),), False, "other"),
    ((Found(OTHER, elsewhere=True), Found(replace(OTHER, name="third"))), False, "third"),
]


def test_a_handle_that_another_persistent_volume_has_is_never_deleted() -> None:
    for users, any_node, user in USERS:
        for reason in [Released(VOLUME), Undone(), orphan(), orphan(policy="Retain")]:
            volume = Found(VOLUME) if isinstance(reason, Released) else None
            view = DeletionView(reason=reason, handle="h", users=users, any_node=any_node, volume=volume, claim=None)
            assert may_delete(view) == (Keep(f"PersistentVolume {user} has the same handle") if user else Delete())


OWN = Found(VOLUME, elsewhere=True)


def test_what_only_a_file_speaks_for_is_kept_for_any_persistent_volume_anywhere() -> None:
    """But for the claim's own: it went there from here."""
    for users, user in [
        ((), ""),
        ((OWN,), ""),
        ((Found(OTHER, elsewhere=True),), "other"),
        ((Found(replace(OTHER, claim=None), elsewhere=True),), "other"),
        ((Found(NOBODYS, elsewhere=True),), NAME),
        ((OWN, Found(OTHER, elsewhere=True)), "other"),
    ]:
        for reason in [replace(orphan(inherited=True), on_file=OnFile(UID, NAME)), Undone(OnFile(UID, NAME))]:
            view = DeletionView(reason=reason, handle="h", users=users, volume=None, claim=ANOTHERS)
            assert may_delete(view) == (
                Keep(f"PersistentVolume {user} of another node has the same handle", suspected=True) if user else Delete()
            )


def test_a_claim_whose_volume_is_called_otherwise_now_does_not_wait_for_this_one() -> None:
    for inherited in [False, True]:
        renamed = replace(orphan(inherited=inherited), renamed=True)
        assert may_delete(DeletionView(reason=renamed, handle="h", users=(), volume=None, claim=OURS)) == Delete()
        assert may_delete(DeletionView(reason=renamed, handle="h", users=(), volume=Found(VOLUME), claim=OURS)) == STORED


def test_a_released_volume_does_not_keep_itself() -> None:
    view = DeletionView(reason=Released(VOLUME), handle="h", users=(Found(VOLUME),), volume=Found(VOLUME))
    assert may_delete(view) == Delete()


def test_a_released_volume_goes_only_as_it_was_when_that_was_decided() -> None:
    for now, verdict in [
        (Found(VOLUME), Delete()),
        (Found(CHANGED), Keep(f"PersistentVolume {NAME} has changed", outdated=True)),
        (Found(NAMESAKE), Keep(f"PersistentVolume {NAME} has changed", outdated=True)),
        (None, Keep(f"PersistentVolume {NAME} is gone", outdated=True)),
    ]:
        assert may_delete(DeletionView(reason=Released(VOLUME), handle="h", users=(), volume=now)) == verdict


STORED = Keep(f"PersistentVolume {NAME} is stored")
OURS_AGAIN = Keep("the claim is this node's again", outdated=True)
COME_AND_GONE = Keep(f"its class keeps volumes, and PersistentVolume {NAME} may have come and gone", suspected=True)
BOUND_TO_NOTHING = Keep(f"the claim is bound to PersistentVolume {NAME}, which is gone", suspected=True)

# the PersistentVolume of that name, the claim, who began it, what its class says -> the verdict
ORPHANS: list[tuple[Found | None, Claim | None, bool, str, Any]] = [
    # its PersistentVolume is stored here: nothing else matters
    *((Found(VOLUME), claim, inherited, policy, STORED)
      for claim, inherited, policy in product((None, OURS, BOUND, NEW_CLAIM), (False, True), ("Delete", "Retain"))),
    # one that is stored on another node, or is another claim's, says nothing of the volume here
    (Found(VOLUME, elsewhere=True), ANOTHERS, False, "Delete", Delete()),
    (Found(NOBODYS), ANOTHERS, False, "Delete", Delete()),
    # the claim is gone, or another one has its name
    (None, None, False, "Delete", Delete()),
    (None, None, False, "Retain", Delete()),
    (None, None, True, "Delete", Delete()),
    (None, None, True, "Retain", COME_AND_GONE),
    (None, NEW_CLAIM, False, "Retain", Delete()),
    (None, NEW_CLAIM, True, "Delete", Delete()),
    (None, NEW_CLAIM, True, "Retain", COME_AND_GONE),
    # the claim is there and shows that it never had the volume
    *((None, claim, inherited, policy, Delete())
      for claim, inherited, policy in product((ANOTHERS, GIVEN_BACK, BOUND_TO_OTHER), (False, True), ("Delete", "Retain"))),
    # it waits for its volume here
    *((None, OURS, inherited, policy, OURS_AGAIN) for inherited, policy in product((False, True), ("Delete", "Retain"))),
    # it is bound to the volume, whose object is gone: a process that is gone may have stored it, this one has not
    (None, BOUND, True, "Delete", BOUND_TO_NOTHING),
    (None, BOUND, True, "Retain", BOUND_TO_NOTHING),
    (None, BOUND, False, "Delete", Delete()),
]  # fmt: skip


def test_what_lost_its_claim_goes_unless_somebody_has_it_or_may_have_kept_it() -> None:
    for volume, claim, inherited, policy, verdict in ORPHANS:
        view = DeletionView(reason=orphan(inherited=inherited, policy=policy), handle="h", users=(), volume=volume, claim=claim)
        assert may_delete(view) == verdict


HANDLE = VOLUME.handle
BESIDE = Keep(f"PersistentVolume {NAME} is stored with handle {HANDLE!r}, and the driver has volume 'h' of that name", suspected=True)
BESIDE_ONE_UNSEEN = replace(BESIDE, suspected=False, outdated=True)
HAS_GONE = Keep(f"PersistentVolume {NAME} had that handle, and has come and gone", suspected=True)


def test_what_was_looked_for_may_be_another_volume_than_that_of_its_persistent_volume() -> None:
    for volume, handle, shown, verdict in [
        *((Found(VOLUME), "", shown, Need(Fact.HANDLE)) for shown in ("", HANDLE)),
        *((Found(VOLUME), HANDLE, shown, STORED) for shown in ("", HANDLE, "another")),
        (Found(VOLUME), "h", "", BESIDE_ONE_UNSEEN),
        (Found(VOLUME), "h", HANDLE, BESIDE),
        (None, HANDLE, HANDLE, HAS_GONE),
        (None, "h", HANDLE, Delete()),
        (None, "h", "", Delete()),
    ]:
        for claim in [None, ANOTHERS]:
            sought = replace(orphan(), sought=True, shown=shown)
            assert may_delete(DeletionView(reason=sought, handle=handle, users=(), volume=volume, claim=claim)) == verdict


def test_each_fact_is_asked_for_in_its_turn_and_none_is_left_out() -> None:
    for view, order in [
        (DeletionView(reason=Released(VOLUME), handle="h"), [Fact.USERS, Fact.VOLUME]),
        (DeletionView(reason=Undone(), handle="h"), [Fact.USERS]),
        (DeletionView(reason=orphan()), [Fact.VOLUME, Fact.CLAIM, Fact.HANDLE, Fact.USERS]),
        (DeletionView(reason=orphan(), handle="h"), [Fact.VOLUME, Fact.CLAIM, Fact.USERS]),
    ]:
        asked = []
        while isinstance(verdict := may_delete(view), Need):
            asked.append(verdict.fact)
            view = told(view, verdict.fact)
        assert asked == order and verdict == Delete()


def told(view: DeletionView, fact: Fact) -> DeletionView:
    """With the answer that leads to the deletion."""
    match fact:
        case Fact.VOLUME:
            return replace(view, volume=Found(VOLUME) if isinstance(view.reason, Released) else None)
        case Fact.CLAIM:
            return replace(view, claim=None)
        case Fact.HANDLE:
            return replace(view, handle="h")
        case Fact.USERS:
            return replace(view, users=())


def every_view() -> Iterator[DeletionView]:
    reasons = [
        Released(VOLUME),
        Undone(),
        *(orphan(inherited=inherited, policy=policy) for inherited, policy in product((False, True), ("Delete", "Retain"))),
    ]
    volumes = [NOT_ASKED, None, Found(VOLUME), Found(CHANGED), Found(VOLUME, elsewhere=True), Found(NOBODYS)]
    claims = [NOT_ASKED, None, OURS, ANOTHERS, GIVEN_BACK, BOUND, BOUND_TO_OTHER, NEW_CLAIM]
    users = [NOT_ASKED, (), (Found(OTHER),), (Found(OTHER, elsewhere=True),)]
    for reason, handle, any_node, volume, claim, who in product(reasons, ("", "h"), (False, True), volumes, claims, users):
        yield DeletionView(reason=reason, handle=handle, any_node=any_node, volume=volume, claim=claim, users=who)  # type: ignore[arg-type]


def test_nothing_is_deleted_while_anything_is_not_known_or_anybody_has_the_handle() -> None:
    verdicts = [(view, may_delete(view)) for view in every_view()]
    assert {type(verdict) for _, verdict in verdicts} == {Need, Delete, Keep}
    for view, verdict in verdicts:
        if isinstance(verdict, Delete):
            assert view.handle and view.users is not NOT_ASKED
            assert isinstance(view.reason, Undone) or view.volume is not NOT_ASKED
            assert not isinstance(view.reason, Orphaned) or view.claim is not NOT_ASKED
            assert not isinstance(view.reason, Released) or (
                isinstance(view.volume, Found) and view.volume.volume.resource_version == VOLUME.resource_version
            )
            here = [found for found in view.users if view.any_node or found.volume.affinity is None or not found.elsewhere]
            assert not here
