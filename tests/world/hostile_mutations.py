"""The bounds against tenants, drivers and forged files, broken on purpose: by a world where one can show it, else by a test of its room.

Worlds have doors without bytes, so how large a body, a page, an event or a journal may be is nothing that they could show. Nor can they
show a text before it is cut, for it is cut on its way out of the driver's socket, or how namespaces share a rate limit, for they have none.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from hack.sim.world.bounds import BELIEVED, COUNTED, KEPT, PRIED
from hack.sim.world.claim_rates import DELETIONS, HURRIED
from hack.sim.world.invariants import CAPACITY, LEAKED, LEFT_OVER, TOLD
from hack.sim.world.measurements import HOT
from hack.sim.world.plan import PLACED
from hack.sim.world.referee import HOLLOW, TAKEN_AWAY, TWO_OWNERS, TWO_VOLUMES
from sidecar.capacity.forbidden import ForbiddenWrites
from sidecar.csi import codec, driver, link, outcome, secret_words, unheard
from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code, DriverError, Unheard
from sidecar.deletion import rules as deletion
from sidecar.deletion.rules import Delete, DeletionView, Fact, Keep, Need, Released
from sidecar.drain.gate.rebuilding import Rebuilding
from sidecar.engine import files_io
from sidecar.engine.fair_line import FairLine
from sidecar.engine.grouped_line import Group, GroupedLine, Whose
from sidecar.engine.queue import WorkQueue
from sidecar.engine.undone import UndoneWrites
from sidecar.kube import list_reader, page_sizes
from sidecar.kube.api import BUDGETS, CLAIMS
from sidecar.kube.line_reader import LineReader
from sidecar.kube.selected_watches import SelectedWatches
from sidecar.kube.sightings import Sightings
from sidecar.model import names, objects
from sidecar.model.objects import compact
from sidecar.model.topology import Segment
from sidecar.observe import decisions, labels
from sidecar.observe.decisions import Decisions
from sidecar.ownership import reserved_space, selected_node_body
from sidecar.ownership import rules as ownership
from sidecar.provisioning import conclusions, deletion_io, progress, progress_table, release_rules, rules, unowned_io, volume_rules
from sidecar.provisioning.controller import Provisioner
from sidecar.provisioning.creations import confirmation, confirming_io, journal_lines, leftovers_io, record_table
from sidecar.provisioning.creations.creation_record import CreationRecord, OpenCall
from sidecar.provisioning.decisions import Ignore
from sidecar.provisioning.effects import creation, creation_log, undoing
from sidecar.provisioning.effects.bidding import Bidder
from sidecar.provisioning.effects.claim_writing import ClaimWriter
from sidecar.provisioning.effects.creation_log import CreationLog
from sidecar.provisioning.effects.undo_pace import UndoPace
from sidecar.provisioning.findings import NOTHING_FOUND, Findings
from sidecar.provisioning.handle_holders_io import HandleHolders
from sidecar.provisioning.pace import PacedAttempts
from sidecar.provisioning.progress import Unsaved
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.provisioning.removal import Removal
from sidecar.provisioning.requests import sources
from sidecar.provisioning.requests import volume as volumes
from tests.harness import samples
from tests.world.mutations import Mutation

Patch = pytest.MonkeyPatch
ENDLESS: Final = 2**40


def _large_claims_are_held(patch: Patch) -> None:
    patch.setattr(objects, "LARGEST_WHOLE", ENDLESS)


def _whatever_is_there_is_written_over(patch: Patch) -> None:
    async def read(self: Any, claim: Any) -> bytes:
        return compact(await self._kube.get(CLAIMS, claim.name, namespace=claim.namespace))

    patch.setattr(ClaimWriter, "_read", read)


def _any_class_is_a_series(patch: Patch) -> None:
    patch.setattr(labels.Classes, "label", lambda self, name: name)


def _pace_is_forgotten(patch: Patch) -> None:
    patch.setattr(PacedAttempts, "forget", PacedAttempts._drop)


def _hopeless_claims_hold_space(patch: Patch) -> None:
    patch.setattr(Findings, "in_vain", False)


def _all_counts_at_once(patch: Patch) -> None:
    patch.setattr(rules, "_in_turn", lambda view, decision: decision)


def _begun_deletions_are_kept(patch: Patch) -> None:
    def forget(self: Any, name: str) -> None:
        if self._caches.volumes.get(name) is None:
            self._table.forget_volume(name)

    patch.setattr(Removal, "_forget_volume", forget)


def _secrets_stay_in_texts(patch: Patch) -> None:
    patch.setattr(secret_words, "without_secrets", lambda text, request: text)


def _drivers_are_believed(patch: Patch) -> None:
    def build(here: Any, claim: Any, class_: Any, request: Any, created: CreatedVolume, *, real: Any = volumes.build, **more: Any) -> Any:
        body = real(here, claim, class_, request, created, **more)
        if isinstance(body, dict):
            body["spec"]["csi"]["volumeAttributes"].update(created.context)
        return body

    patch.setattr(volumes, "build", build)


def _lost_answers_are_refusals(patch: Patch) -> None:
    def of_failure(error: DriverError, *, may_reschedule: bool, real: Any = creation.of_failure) -> Any:
        heard = DriverError(error.code, error.message) if isinstance(error, Unheard) else error
        return real(heard, may_reschedule=may_reschedule)

    patch.setattr(creation, "of_failure", of_failure)


def _denials_are_believed(patch: Patch) -> None:
    patch.setattr(OpenCall, "denied", lambda self, now, timeout: None)


def _one_volume_for_two_claims(patch: Patch) -> None:
    async def nobody(self: Any, handle: str, *, uid: str, name: str) -> str:
        return ""

    patch.setattr(HandleHolders, "other", nobody)


def _any_name_ends_a_begin(patch: Patch) -> None:
    patch.setattr(CreationRecord, "is_renamed", lambda self, here: False)


def _any_number_of_places(patch: Patch) -> None:
    patch.setattr(volumes, "MOST_PLACES", ENDLESS)


def _lines_delete_what_is_named(patch: Patch) -> None:
    def may_delete(view: DeletionView, *, real: Any = deletion_io.may_delete) -> Need | Delete | Keep:
        if isinstance(view.reason, Released) or view.reason.on_file is None:
            decided: Need | Delete | Keep = real(view)
            return decided
        return Delete() if view.handle else Need(Fact.HANDLE)

    patch.setattr(deletion_io, "may_delete", may_delete)


def _lines_read_any_secret(patch: Patch) -> None:
    patch.setattr(confirmation, "_why_not", lambda record, claim, class_: "")


def _any_growth_wakes_all(patch: Patch) -> None:
    _all_counts_at_once(patch)  # else the pace of each claim hides it

    def room_grew(self: Any, classes: frozenset[str], answer: Any, promised: int) -> list[tuple[str, float]]:
        now, found = self._clock(), list[tuple[str, float]]()
        for uid, race in self._table.hindered_races(list(self._table._claims)):
            claim = self._caches.claims.get(uid)
            if claim is not None and not claim.selected_node and claim.class_name in classes and ownership.waits_for_room(race):
                self._table.advance(uid, progress.with_race(self._table.progress(uid), ownership.room_grew(race, now)))
                found.append((uid, now))
        return found

    patch.setattr(Provisioner, "room_grew", room_grew)


def _only_the_node_of_a_source_releases_it(patch: Patch) -> None:
    def turn(view: Any, claim: Any, *, real: Any = release_rules._turn) -> Any:
        waits = real(view, claim)
        return waits or (real(replace(view, findings=NOTHING_FOUND), claim) if view.here.options.cross_namespace_sources else None)

    patch.setattr(release_rules, "_turn", turn)


def _departures_are_believed(patch: Patch) -> None:
    async def nothing(self: Any, wanted: Any) -> None:
        return None

    patch.setattr(SelectedWatches, "_find", nothing)


def _strays_are_not_asked_for(patch: Patch) -> None:
    patch.setattr(Sightings, "next_stray", lambda self: None)


HOSTILE_MUTATIONS: Final = (
    # Tenants
    Mutation("large claims are held whole", _large_claims_are_held, frozenset({KEPT})),
    Mutation(
        "a large claim is written over what others have made of it",
        _whatever_is_there_is_written_over,
        frozenset({TWO_OWNERS}),
        without=(PLACED, "mixed"),
    ),
    Mutation("any class that a claim names is a series", _any_class_is_a_series, frozenset({COUNTED})),
    Mutation("when a deletion began is kept for ever", _begun_deletions_are_kept, frozenset({KEPT})),
    Mutation("a claim that leaves takes its pace along", _pace_is_forgotten, frozenset({HURRIED})),
    Mutation("a claim that can never be made holds space back", _hopeless_claims_hold_space, frozenset({CAPACITY})),
    Mutation("whatever happens to a claim that fails counts at once", _all_counts_at_once, frozenset({HURRIED})),
    # Drivers
    Mutation("secrets stay in what drivers say", _secrets_stay_in_texts, frozenset({TOLD})),
    Mutation("a driver is believed about who made a volume", _drivers_are_believed, frozenset({BELIEVED})),
    Mutation("an answer that was lost is taken for a refusal", _lost_answers_are_refusals, frozenset({LEAKED})),
    Mutation("a denial is believed while an earlier call may be under way", _denials_are_believed, frozenset({LEAKED})),
    Mutation("a volume is given to two claims", _one_volume_for_two_claims, frozenset({TWO_VOLUMES, TAKEN_AWAY, HOLLOW})),
    Mutation("a driver may name any number of places", _any_number_of_places, frozenset({BELIEVED})),
    Mutation("any growth wakes all claims that found no room", _any_growth_wakes_all, frozenset({HOT})),
    # Operators
    Mutation("what was begun under another name ends with the claim's volume", _any_name_ends_a_begin, frozenset({LEAKED})),
    Mutation("what leaves a selector is believed to be gone", _departures_are_believed, frozenset({LEAKED, LEFT_OVER})),
    Mutation("what no selector fits is not asked for", _strays_are_not_asked_for, frozenset({LEAKED, LEFT_OVER})),
    # Files
    Mutation("a line of the journal deletes what a PersistentVolume names", _lines_delete_what_is_named, frozenset({TAKEN_AWAY})),
    Mutation("a line of the journal reads any Secret", _lines_read_any_secret, frozenset({PRIED})),
)


@dataclass(frozen=True)
class RoomMutation:
    """What no world can show. `test` is `module:function` below `tests`; `given` makes its parameters that are no fixtures."""

    name: str
    breaks: Callable[[Patch], None]
    test: str
    given: Callable[[], Mapping[str, Any]] = dict


def _setting(module: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(module, name, value)


async def _nothing_is_written(self: CreationLog, uid: str) -> None:
    pass


def _one_line_for_all(patch: Patch) -> None:
    def put(self: Any, party: Any, place: Any, *, real: Any = FairLine.put) -> None:
        real(self, None, place)

    patch.setattr(FairLine, "put", put)


def _one_group_for_all(patch: Patch) -> None:
    def put(self: Any, whose: Whose, place: Any, *, real: Any = GroupedLine.put) -> None:
        real(self, whose._replace(group=Group.NEW), place)

    patch.setattr(GroupedLine, "put", put)


def _one_party_may_hold_all(patch: Patch) -> None:
    def init(self: Any, *given: Any, real: Any = WorkQueue.__init__, **named: Any) -> None:
        real(self, *given, **{**named, "most_held": ENDLESS})

    patch.setattr(WorkQueue, "__init__", init)


def _any_number_of_bytes(patch: Patch) -> None:
    def add(self: Any, place: Any, entry: Any, *, real: Any = Decisions._add) -> None:
        self._most_bytes = ENDLESS
        real(self, place, entry)

    patch.setattr(Decisions, "_add", add)


def _no_checksum(patch: Patch) -> None:
    patch.setattr(journal_lines, "_SEAL", re.compile(rb"(?!)"))


def _text_goes_on(patch: Patch) -> None:
    patch.setattr(outcome, "shortened", lambda text: text)


def _any_line(patch: Patch) -> None:
    patch.setattr(LineReader.__init__, "__defaults__", (ENDLESS,))


def _lists_never_end(patch: Patch) -> None:
    async def list_volumes(self: Any) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        token = ""
        for _ in range(50):
            page, token = await self._call(driver.LIST, codec.list_volumes(token))
            found |= {handle: bool(places) for handle, places in page}
            if not token:
                break
        return found

    patch.setattr(driver.GrpcDriver, "list_volumes", list_volumes)


def _journals_are_read_to_their_end(patch: Patch) -> None:
    patch.setattr(journal_lines, "_lines", lambda file, *, most: iter(file.readline, b""))


def _links_are_followed(patch: Patch) -> None:
    patch.setattr(files_io, "_READ", files_io._READ & ~os.O_NOFOLLOW)


def _files_of_others_are_written(patch: Patch) -> None:
    patch.setattr(files_io, "_WRITE", files_io._WRITE & ~(os.O_EXCL | os.O_NOFOLLOW))


def _givers_are_forgotten(patch: Patch) -> None:
    """By whoever takes the claim next, so that two nodes hand it back and forth."""

    def with_selected_node(whole: bytes, node: str, *, real: Any = selected_node_body.with_selected_node) -> bytes:
        obj = json.loads(real(whole, node))
        obj["metadata"]["annotations"].pop(names.TRIED_BY, None)
        return json.dumps(obj).encode()

    patch.setattr(selected_node_body, "with_selected_node", with_selected_node)


_FILES: Final = "engine.test_files_io"
_MADE_ELSEWHERE: Final = {
    "driver": samples.DRIVER,
    "volumeHandle": "h",
    "volumeAttributes": {names.PROVISIONER_IDENTITY: f"1700000000000-1-{samples.DRIVER}-bar"},
}
_STATIC: Final = "cases.test_static_sources"
_LARGE, _JOURNAL, _FORGED = "kube.test_large_objects", "provisioning.creations.test_journal_lines", "provisioning.creations.test_forged"
ROOM_MUTATIONS: Final = (
    # Tenants
    RoomMutation(
        "a page that is too large is read to its end",
        _setting(page_sizes, "is_too_large", lambda limit, *, count, size: False),
        f"{_LARGE}:test_pages_shrink_where_objects_are_large_and_grow_again",
        lambda: {"zipped": False},
    ),
    RoomMutation(
        "pages are as large as ever whatever objects hold",
        _setting(page_sizes, "next_limit", lambda limit, *, count, size: limit),
        f"{_LARGE}:test_pages_shrink_where_objects_are_large_and_grow_again",
        lambda: {"zipped": True},
    ),
    RoomMutation(
        "an object of any size is read",
        _setting(list_reader, "LONGEST_OBJECT", ENDLESS),
        f"{_LARGE}:test_a_bomb_in_place_of_a_list_is_one_failure_and_little_memory",
    ),
    RoomMutation("an event of any size is read", _any_line, f"{_LARGE}:test_a_line_without_end_that_names_nothing_ends_the_watch"),
    RoomMutation(
        "a claim's source is a series",
        _setting(labels, "source", str),
        "observe.test_labels:test_populators_of_thousands_of_kinds_are_one_series",
    ),
    RoomMutation(
        "the series of classes that are gone stay",
        _setting(labels.Classes, "gone", lambda self: []),
        "observe.test_labels:test_the_series_of_a_class_go_with_it",
        lambda: {"scraped": True},
    ),
    RoomMutation(
        "any status is a series",
        _setting(labels, "status", str),
        "observe.test_labels:test_a_server_that_answers_with_any_number_makes_few_series",
    ),
    RoomMutation(
        "decisions of any size are kept",
        _any_number_of_bytes,
        "observe.test_decisions:test_many_texts_of_middle_length_displace_the_oldest",
    ),
    RoomMutation(
        "long texts of decisions are kept",
        _setting(decisions, "clipped", lambda text, limit: text),
        "observe.test_decisions:test_long_texts_are_cut",
    ),
    RoomMutation(
        "what has failed waits with what is new",
        _one_group_for_all,
        "engine.test_queue:test_keys_that_have_failed_in_many_parties_make_a_new_one_wait_for_none_of_them",
    ),
    RoomMutation(
        "what has failed may hold all workers",
        _one_party_may_hold_all,
        "engine.test_queue:test_keys_that_have_failed_do_not_hold_all_workers_however_many_parties_they_are_of",
    ),
    RoomMutation(
        "namespaces wait in one line", _one_line_for_all, "engine.test_queue:test_a_party_with_many_keys_makes_another_wait_for_one"
    ),
    RoomMutation(
        "namespaces wait in one line",
        _one_line_for_all,
        "provisioning.test_fairness:test_where_the_rate_is_no_limit_they_take_no_longer_than_twice_as_long",
        lambda: {"selected": True},
    ),
    RoomMutation(
        "a namespace may hold all workers",
        _one_party_may_hold_all,
        "engine.test_queue:test_a_party_whose_work_hangs_leaves_room_for_others",
    ),
    RoomMutation(
        "a source of clones waits for its own node for ever",
        _only_the_node_of_a_source_releases_it,
        "cases.test_cleanup:test_with_sources_across_namespaces_another_node_releases_it_too",
        lambda: {"far": None},
    ),
    # Volumes that people made
    RoomMutation(
        "clones of volumes that no node counts as its own are left to others",
        _setting(rules, "_source_first", lambda view, claim: None if view.source_here else Ignore("another node has it")),
        f"{_STATIC}:test_a_node_that_can_reach_the_source_takes_the_clone_after_those_that_have_it",
        lambda: {"affinity": None},
    ),
    RoomMutation(
        "who made a volume says nothing about where it is",
        _setting(sources, "with_another_node", lambda here, claim, facts: ""),
        f"{_STATIC}:test_what_is_on_another_node_is_left_to_it_and_seldom_asked_about",
        lambda: {"affinity": None, "identity": "1700000000000-1-test-driver-bar"},
    ),
    RoomMutation(
        "a node of which the driver does not know the source keeps the clone",
        _setting(conclusions, "_may_be_elsewhere", lambda view, attempt: False),
        f"{_STATIC}:test_a_node_of_which_the_driver_does_not_know_the_source_leaves_the_clone_to_others",
    ),
    RoomMutation(
        "each volume that nobody can use is a list of all",
        _setting(UndoPace, "wait_until", lambda self, now: 0.0),
        "provisioning.test_undo_pace:test_volumes_that_nobody_can_use_cost_few_lists_and_all_go",
    ),
    RoomMutation(
        "nobody tells of a volume that nobody deletes",
        _setting(unowned_io, "why_unowned", lambda here, volume: ""),
        "provisioning.test_unowned:test_the_watch_shows_them_and_the_cache_does_not_keep_them",
    ),
    RoomMutation(
        "of a volume that another node deletes it is told that nobody does",
        _setting(unowned_io, "is_of_another_node", lambda here, volume: False),
        "provisioning.test_unowned:test_of_others_nothing_is_said_and_nothing_asked",
        lambda: {"obj": samples.volume_json(spec={"nodeAffinity": None, "csi": _MADE_ELSEWHERE})},
    ),
    # Places
    RoomMutation(
        "a place that the class allows is undone for ever",
        _setting(volumes, "_was_asked_for", lambda request, created: False),
        "provisioning.test_elsewhere:test_a_place_that_the_class_allows_and_the_driver_chose_is_stored_as_it_is",
        lambda: {"places": (Segment.of({"topology.test-driver/node": "bar"}),)},
    ),
    # Rights
    RoomMutation(
        "what is forbidden is tried at every poll",
        _setting(ForbiddenWrites, "until", lambda self, class_name, write: 0.0),
        "capacity.test_controller:test_what_may_not_be_written_is_tried_ever_less_often_and_told_once",
        lambda: {"verb": "create"},
    ),
    # Drivers
    RoomMutation(
        "what gRPC says itself is the driver's word",
        _setting(unheard, "STATUSES", {}),
        "csi.test_unheard:test_the_beginning_of_a_status_decides",
    ),
    RoomMutation(
        "a driver that is unavailable has its time anew with each answer",
        lambda patch: patch.setattr(link, "_unavailable", lambda at, event, now: link._away(replace(at, deadline=now + 30.0), "", now)),
        "csi.test_link:test_a_driver_that_is_unavailable_all_the_time_ends_the_start_and_says_when",
    ),
    RoomMutation(
        "texts of drivers go on as long as they are",
        _text_goes_on,
        "test_errors:test_no_failure_keeps_a_text_of_any_length",
        lambda: {"error": outcome.BadAnswer("x" * 1_000_000)},
    ),
    RoomMutation(
        "lists are read as long as they go on", _lists_never_end, "csi.test_driver:test_a_list_that_comes_to_no_end_is_the_drivers_fault"
    ),
    RoomMutation(
        "lists are read however much memory they take",
        _lists_never_end,
        "csi.test_driver:test_a_list_is_bounded_in_the_memory_that_it_takes",
    ),
    RoomMutation(
        "lists are read however much is in them", _lists_never_end, "csi.test_driver:test_a_list_is_bounded_in_entries_and_handles"
    ),
    RoomMutation(
        "who gave a claim back is forgotten when another takes it",
        _givers_are_forgotten,
        "simulation.swarm.test_contests:test_drivers_that_lie_about_room_hold_nobody_up",
        lambda: {"nodes": 8, "liars": 7},
    ),
    RoomMutation(
        "larger volumes than before are no growth",
        _setting(reserved_space, "_largest", lambda answer: 0.0),
        "provisioning.test_promises:test_who_waits_for_a_larger_volume_is_woken_when_the_largest_has_grown_and_once_a_second",
    ),
    RoomMutation(
        "a volume that the cache has yet to show is nobody's",
        _setting(ProgressTable, "stored", lambda self, name, handle: None),
        "provisioning.test_handle_clash:test_one_whose_claim_is_bound_counts_before_the_cache_shows_it",
    ),
    RoomMutation(
        "whatever waits for the API server is kept",
        _setting(Unsaved, "unpacked", lambda self: self),
        "provisioning.test_kept_bodies:test_there_is_room_again_when_one_of_them_is_stored_or_forgotten",
    ),
    RoomMutation(
        "an edit ends the back-off",
        _all_counts_at_once,
        "provisioning.test_edited_claims:test_an_edit_each_second_is_no_call_each_second",
        lambda: {"code": Code.INTERNAL, "edit": "a note"},
    ),
    RoomMutation(
        "who moves a claim away and back ends the back-off",
        _pace_is_forgotten,
        "provisioning.test_flipped_claims:test_flips_are_no_calls",
        lambda: {"code": Code.FAILED_PRECONDITION, "pause": 4.0},
    ),
    RoomMutation(
        "a bid that does not stay is made again at once",
        _setting(Bidder, "_has_not_stayed", lambda self, before, written: False),
        "provisioning.test_writes_undone:test_a_bid_that_does_not_stay_is_repeated_at_a_pace_and_told",
        lambda: {"placement": "ranked"},
    ),
    RoomMutation(
        "what is published is made again at once whoever deletes it",
        _setting(UndoneWrites, "turn", lambda self, key: 0.0),
        "capacity.test_controller:test_what_is_deleted_again_and_again_is_made_ever_less_often",
    ),
    RoomMutation(
        "a finalizer that is taken off is put on again at once",
        _setting(UndoneWrites, "turn", lambda self, key: 0.0),
        "provisioning.test_writes_undone:test_a_finalizer_that_somebody_takes_off_is_put_on_at_a_pace",
    ),
    RoomMutation(
        "a gate is built again at once for ever",
        _setting(Rebuilding, "due", -math.inf),
        "drain.gate.test_rebuilding:test_who_takes_it_away_for_ever_has_no_node_write_for_ever",
        lambda: {"kinds": (BUDGETS,), "drained": True},
    ),
    RoomMutation(
        "whatever happens to a volume that fails counts at once",
        _setting(volume_rules, "is_try", lambda decision: False),
        "provisioning.test_flipped_volumes:test_changes_are_no_calls_and_no_writes",
        lambda: {"begin": "released", "change": "edited", "what": DELETIONS},
    ),
    RoomMutation(
        "a claim that can never be made holds space back whenever it comes back",
        _setting(progress_table, "MOST_FAILED", 0),
        "provisioning.test_flipped_claims:test_claims_that_come_and_go_and_can_never_be_made_hold_no_space_back",
        lambda: {"code": Code.FAILED_PRECONDITION, "spec": {}, "pause": 1.0},
    ),
    RoomMutation(
        "a failure that says nothing ends what the driver has begun",
        _setting(creation_log.CreationLog, "left_open", lambda self, uid: None),
        "provisioning.test_late_success:test_a_failure_that_says_nothing_may_go_on_too",
        lambda: {"first": DriverError(Code.INTERNAL, "the command went wrong")},
    ),
    # Operators
    RoomMutation(
        "a claim waits for ever for what was begun under another name",
        _setting(rules, "_MOST_FAILURES", ENDLESS),
        "provisioning.test_renamed:test_an_old_name_that_the_driver_never_finds_does_not_keep_the_claim_for_ever",
        lambda: {"code": Code.ABORTED},
    ),
    RoomMutation(
        "a volume of another name ends what was begun for the claim",
        _setting(rules, "_beside", lambda view, name: None),
        "provisioning.test_renamed:test_a_volume_that_somebody_else_made_under_another_name_does_not_end_what_is_begun_here",
    ),
    RoomMutation(
        "a claim is given what may still be deleted when flags for names are taken back",
        _setting(Provisioner, "_begun_deletion", lambda self, claim, here: None),
        "provisioning.test_renamed:test_when_flags_are_taken_back_a_deletion_that_may_still_happen_ends_before_the_claim_is_given_the_volume",
    ),
    RoomMutation(
        "what nobody has seen is asked for all at once",
        _setting(progress_table, "MOST_DOUBTED", ENDLESS),
        "provisioning.test_stored_doubted:test_many_are_doubted_a_hundred_at_a_time_the_longest_unseen_first",
    ),
    # Files
    RoomMutation(
        "a journal is read to its end",
        _journals_are_read_to_their_end,
        f"{_JOURNAL}:test_a_file_that_is_too_large_is_not_used_at_all",
        lambda: {"largest": 10_000, "most_open": 500},
    ),
    RoomMutation(
        "links are followed",
        _links_are_followed,
        f"{_FILES}:test_nothing_but_a_file_is_read_and_nobody_is_waited_for",
        lambda: {"kind": "link"},
    ),
    RoomMutation(
        "what lies there is written through",
        _files_of_others_are_written,
        f"{_FILES}:test_what_lies_under_the_fresh_name_is_not_written_through",
        lambda: {"kind": "link"},
    ),
    RoomMutation(
        "a line may name any volume",
        _setting(confirming_io, "foreign", lambda here, record: ""),
        f"{_FORGED}:test_a_name_that_is_not_the_claims_volumes_is_not_asked_for",
    ),
    RoomMutation(
        "a line of a node of another name is followed",
        _setting(confirming_io, "foreign", lambda here, record: ""),
        f"{_FORGED}:test_what_was_begun_on_a_node_of_another_name_is_left_to_people",
        lambda: {"deletion": None},
    ),
    RoomMutation(
        "what was made here counts as another node's when a label has changed",
        _setting(deletion_io, "was_made_here", lambda here, volume: False),
        f"{_FORGED}:test_where_the_driver_reports_another_place_than_before_what_was_made_here_counts_as_here",
        lambda: {"deletion": None},
    ),
    RoomMutation(
        "a line deletes what another node's PersistentVolume names",
        _setting(deletion, "_named_elsewhere", lambda view, on_file: None),
        f"{_FORGED}:test_what_a_persistent_volume_anywhere_names_is_not_deleted",
        lambda: {"node": "bar", "phase": "Bound"},
    ),
    RoomMutation(
        "a journal is as old as its file",
        _setting(leftovers_io, "_is_silent", lambda changed, alive: False),
        "provisioning.creations.test_journal:test_a_journal_that_was_copied_back_from_a_backup_is_as_old_as_what_it_says",
    ),
    RoomMutation(
        "a line that was changed is used",
        _no_checksum,
        f"{_JOURNAL}:test_a_line_that_was_changed_is_not_used",
        lambda: {"line": journal_lines.end_line("uid-1").replace(b"uid-1", b"uid-2")},
    ),
    RoomMutation(
        "a volume goes while its PersistentVolume may still arrive",
        _setting(undoing, "LATE_STORE", 0.0),
        "provisioning.test_late_store:test_of_another_program_which_left_no_record",
    ),
    RoomMutation(
        "a volume goes while the PersistentVolume of a claim that went elsewhere may still arrive",
        _setting(undoing.Undoer, "sent_until", lambda self, uid: 0.0),
        "provisioning.test_late_store:test_where_the_claim_has_gone_elsewhere_meanwhile",
    ),
    RoomMutation(
        "a look for a leftover ends with a PersistentVolume that arrives late",
        _setting(creation_log.CreationLog, "seeks", _nothing_is_written),
        "provisioning.test_late_object:test_what_the_call_makes_after_that_is_found_and_deleted",
    ),
    RoomMutation(
        "what a PersistentVolume named that arrived late and has gone is deleted",
        _setting(record_table.RecordTable, "show", lambda self, volume: None),
        "provisioning.test_late_object:test_its_own_volume_is_left_to_people_when_the_object_has_come_and_gone",
    ),
    RoomMutation(
        "a volume that was deleted while the driver was asked is stored",
        _setting(deletion_io.Deletion, "ended_since", lambda self, handle, at: False),
        "provisioning.test_handle_clash:test_one_that_was_deleted_while_the_driver_was_asked_is_given_to_nobody",
    ),
)
