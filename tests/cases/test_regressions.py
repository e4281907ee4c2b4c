"""What once leaked a volume, deleted somebody's, or waited for ever: each was found by a test and mended."""

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.kube.errors import Conflict, Forbidden, Invalid
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.provisioning.view import VolumeView
from sidecar.provisioning.volume_rules import Empty, Rest, decide_volume
from tests.harness import samples
from tests.harness.provisioning.bench import Bench, rpc, run
from tests.harness.provisioning.room import NAME, NAMESPACE, OpenDriver, Room, able, room_for, secret


def begun_and_unknown(answer: CreatedVolume | Code, **room: str) -> Room:
    """The first attempt may have made a volume; the next one is answered like that."""
    creates = [rpc(Code.DEADLINE_EXCEEDED), rpc(answer) if isinstance(answer, Code) else answer]
    made = room_for(driver=OpenDriver(creates=list(creates)), parameters=room)
    made.add("secrets", secret("a", "fake-ns", key="value"))
    made.claim()
    assert made.paper.lines
    return made


def test_a_volume_that_was_left_alone_because_another_one_uses_it_is_left_alone_when_its_claim_goes() -> None:
    for in_cache in [True, False]:
        room = room_for(driver=OpenDriver(creates=[CreatedVolume("shared", 99)]))
        used = samples.volume_json(
            meta={"name": "another"},
            spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "shared"}, "claimRef": {"uid": "o", "namespace": "n", "name": "other"}},
            status={"phase": "Bound"},
        )
        room.add("persistentvolumes", used)
        if in_cache:
            room.see(volume=Volume.of(used))
        room.claim()
        assert ("which is PersistentVolume another" if in_cache else "left alone") in room.said()
        room.delete_claim()
        room.claim()
        assert room.driver.count("delete") == 0, "it is somebody's data"


def test_a_refusal_of_a_changed_class_says_nothing_of_what_the_former_one_has_made() -> None:
    for answer in [Code.ALREADY_EXISTS, Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE]:
        room = begun_and_unknown(answer)
        room.see(class_=samples.class_(metadata={"name": "fake-class", "uid": "another"}, parameters={"pool": "slow"}))
        room.claim()
        assert room.paper.lines


def test_what_may_have_been_made_for_a_claim_that_is_gone_does_not_wait_for_its_class_to_come_back() -> None:
    room = begun_and_unknown(CreatedVolume("test-volume-id", 100))
    room.delete_claim()
    room.caches.classes.apply(Change("fake-class", None, None))
    for _ in range(5):
        room.now = max(room.now, room.claim() or 0.0)
    assert not room.paper.lines
    assert room.driver.count("delete") == 1


def test_a_secret_that_went_with_the_claim_does_not_keep_its_volume() -> None:
    first = begun_and_unknown(Code.DEADLINE_EXCEEDED, **{NAME: "a", NAMESPACE: "fake-ns"})
    room = Room(driver=OpenDriver(), paper=first.paper)
    run(room.room.take_over())
    for _ in range(8):
        room.now = max(room.now, room.claim() or 0.0)
    assert room.driver.count("delete") == 1
    assert not room.paper.lines


def test_what_the_api_server_will_never_store_goes_when_its_claim_has_gone() -> None:
    for answer in [Invalid("denied by a webhook", status=422), Forbidden("not allowed", status=403)]:
        room = room_for(driver=OpenDriver())
        room.kube.failures["create"] = [answer] * 100
        for _ in range(5):
            room.now = max(room.now, room.claim() or 0.0)
        assert room.driver.count("delete") == 0, "its claim is there, and may be helped yet"
        room.delete_claim()
        for _ in range(2):
            room.now = max(room.now, room.claim() or 0.0)
        assert room.driver.count("delete") == 1
        assert room.table.unsaved() == 0
        assert not room.paper.lines


def test_a_claim_that_is_gone_and_whose_name_another_ones_volume_has_is_settled() -> None:
    room = begun_and_unknown(Code.INVALID_ARGUMENT)
    other = samples.volume_json(spec={"claimRef": {"uid": "testi-other", "namespace": "n", "name": "other"}}, status={"phase": "Bound"})
    room.add("persistentvolumes", other).see(volume=Volume.of(other))
    room.delete_claim()
    told = len(room.told.events)
    for _ in range(8):
        room.now = max(room.now, room.claim() or 0.0)
    assert not room.paper.lines
    assert room.driver.count("delete") == 0, "it is somebody's data"
    assert len(room.told.events) == told, "there is nobody to tell"


def test_an_affinity_that_names_no_place_of_this_node_is_no_proof() -> None:
    """It may hold on every node, and each driver would say that the volume is gone."""
    for key, operator, values, where_made in [
        (samples.KEY, "NotIn", ["bar"], True),
        (samples.KEY, "Exists", [], True),
        ("kubernetes.io/hostname", "In", ["bar"], False),
        ("kubernetes.io/hostname", "In", ["foo"], False),
        (samples.KEY, "In", ["bar"], False),
    ]:
        terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]
        for made_by, expected in (("1-2-test-driver-foo", where_made), ("1-2-test-driver-bar", False)):
            csi = {"driver": samples.DRIVER, "volumeHandle": "h", "volumeAttributes": {names.PROVISIONER_IDENTITY: made_by}}
            spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}, "csi": csi}
            volume = samples.volume(spec=spec, status={"phase": "Released"})
            assert isinstance(decide_volume(VolumeView(samples.here(), volume)), Empty) is expected


def test_a_driver_that_tells_no_place_for_a_moment_deletes_nobody_elses_volume() -> None:
    csi = {"driver": samples.DRIVER, "volumeHandle": "h", "volumeAttributes": {names.PROVISIONER_IDENTITY: "1-2-test-driver-foo"}}
    volume = samples.volume(spec={"nodeAffinity": samples.placed("bar"), "csi": csi}, status={"phase": "Released"})
    assert isinstance(decide_volume(VolumeView(samples.here(samples.info(segment={})), volume)), Rest)


def test_a_volume_that_would_be_kept_is_deleted_only_if_its_claim_was_seen_without_it() -> None:
    for seen_alive in [True, False]:
        first = room_for(driver=OpenDriver(creates=[rpc(Code.DEADLINE_EXCEEDED)]))
        first.see(class_=samples.class_(reclaimPolicy="Retain"))
        first.claim()
        room = Room(driver=OpenDriver(creates=[rpc(Code.INTERNAL), CreatedVolume("test-volume-id", 100)]), paper=first.paper)
        room.see(class_=samples.class_(reclaimPolicy="Retain"))
        run(room.room.take_over())
        if seen_alive:
            room.show(samples.claim_json(annotations={names.SELECTED_NODE: "foo"}))
            room.claim()
            room.delete_claim()
        for _ in range(4):
            room.now = max(room.now, room.claim() or 0.0)
        assert room.driver.count("delete") == seen_alive
        # What is not deleted stays on record for people.
        assert [bool(record.suspect) for record in room.paper.lines.values()] == [True] * (not seen_alive)


def test_a_volume_that_says_it_was_provisioned_by_nobody_is_left_alone() -> None:
    volume = samples.volume(annotations={names.PROVISIONED_BY: ""}, status={"phase": "Released"})
    assert isinstance(decide_volume(VolumeView(samples.here(), volume)), Rest)


def test_a_finalizer_that_cannot_be_put_on_is_no_deletion_that_failed() -> None:
    for answer in [Forbidden("no patch", status=403), Conflict("changed meanwhile", status=409)]:
        bound = samples.volume_json(meta={"finalizers": ["kubernetes.io/pv-protection"]}, status={"phase": "Bound"})
        room = Bench().see(class_=samples.class_(), volume=Volume.of(bound))
        room.kube.objects["persistentvolumes", "test-testi"] = bound
        room.kube.failures["patch"] = [answer]
        assert room.volume() is not None, "it is tried again"
        assert room.told.events == []
        assert room.value("controller_persistentvolume_delete_failed_total") in (None, 0.0)


def test_what_was_begun_does_not_stand_before_the_claim_itself_any_more_when_it_is_settled() -> None:
    """A source of clones that is being deleted, taken over from a process that died before it could strike it out."""
    first = room_for(driver=able(creates=[rpc(Code.DEADLINE_EXCEEDED)]))
    first.claim()
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names.CLONE_FINALIZER]}
    room = Room(driver=able(), paper=first.paper).show(samples.claim_json(meta=leaving, volumeName="test-testi"))
    volume = samples.volume_json(status={"phase": "Bound"})
    room.add("persistentvolumes", volume).see(volume=Volume.of(volume), class_=samples.class_())
    run(room.room.take_over())
    assert room.claim() == room.now
    room.claim()
    assert room.kube.wrote("replace"), "the source is let go"


def test_a_secret_that_goes_with_the_claim_under_a_running_process_does_not_keep_its_volume() -> None:
    room = begun_and_unknown(CreatedVolume("test-volume-id", 100), **{NAME: "a", NAMESPACE: "fake-ns"})
    room.delete_claim()
    room.kube.objects.pop(("secrets", "a"))
    for _ in range(3):
        room.now = max(room.now, room.claim() or 0.0)
    assert room.driver.count("delete") == 1
    assert not room.paper.lines
