from hypothesis import given
from hypothesis import strategies as st

from sidecar.kube.events.correlator import COMBINED, Correlator, ObjectRef, Posting

CLAIM = ObjectRef("v1", "PersistentVolumeClaim", "ns", "a", "uid-a", "7")


class Story:
    """Things happening to objects, at times."""

    def __init__(self, **options: int) -> None:
        self.correlator = Correlator("driver_node", "node-1", **options)
        self.now = 0.0

    def tell(self, message: str, *, ref: ObjectRef = CLAIM, reason: str = "R", type_: str = "Normal", once: str = "") -> Posting | None:
        return self.correlator.correlate(ref, type_, reason, message, now=self.now, wall=1_767_225_600.0 + self.now, once=once)

    def told(self, message: str, **how: str) -> Posting:
        posting = self.tell(message, **how)  # type: ignore[arg-type]
        assert posting is not None
        return posting


def test_a_first_event_is_complete() -> None:
    posting = Story().told("it happened")
    name = posting.body["metadata"]["name"]
    assert posting == Posting(
        "ns",
        name,
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "ns"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "ns",
                "name": "a",
                "uid": "uid-a",
                "resourceVersion": "7",
            },
            "type": "Normal",
            "reason": "R",
            "message": "it happened",
            "source": {"component": "driver_node", "host": "node-1"},
            "reportingComponent": "driver_node",
            "reportingInstance": "node-1",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
        },
        again=False,
    )
    object_name, _, stamp = name.rpartition(".")
    assert object_name == "a"
    assert abs(int(stamp, 16) - 1_767_225_600 * 10**9) < 1000


def test_the_same_again_is_counted() -> None:
    story = Story()
    first = story.told("it happened")
    story.now = 60.0
    second = story.told("it happened")
    assert (second.again, second.name) == (True, first.name)
    assert second.patch == {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z", "message": "it happened"}
    assert second.body["firstTimestamp"] == "2026-01-01T00:00:00Z"


def test_other_reasons_types_objects_and_messages_are_other_events() -> None:
    story = Story()
    postings = [
        story.told("it happened"),
        story.told("it happened", reason="S"),
        story.told("it happened", type_="Warning"),
        story.told("something else"),
        story.told("it happened", ref=ObjectRef("v1", "PersistentVolumeClaim", "ns", "a", "another uid")),  # type: ignore[arg-type]
    ]
    assert not any(posting.again for posting in postings)
    assert len({posting.name for posting in postings}) == 5, "even in the same nanosecond"


def test_more_than_ten_similar_ones_are_told_as_one() -> None:
    story = Story()
    singles = [story.told(f"attempt {number}") for number in range(10)]
    assert not any(posting.again or posting.body["message"].startswith(COMBINED) for posting in singles)
    eleventh, twelfth = story.told("attempt 10"), story.told("attempt 11")
    assert (eleventh.again, eleventh.body["message"]) == (False, f"{COMBINED}attempt 10")
    assert (twelfth.again, twelfth.name, twelfth.body["count"]) == (True, eleventh.name, 2)
    assert twelfth.patch["message"] == f"{COMBINED}attempt 11"
    assert story.told("attempt 3").body["count"] == 2, "what had its own event keeps it"


def test_after_ten_quiet_minutes_similar_ones_stand_alone_again() -> None:
    story = Story()
    for number in range(11):
        story.told(f"attempt {number}")
    story.now = 600.5
    assert story.told("attempt 99").body["message"] == "attempt 99"


def test_an_object_gets_25_events_and_then_one_per_five_minutes() -> None:
    story = Story()
    assert sum(story.tell("same") is not None for _ in range(40)) == 25
    story.now = 299.0
    assert story.tell("same") is None
    story.now = 301.0
    assert story.told("same").body["count"] == 42, "what was withheld counts"
    assert story.tell("same") is None
    other = ObjectRef("v1", "PersistentVolumeClaim", "ns", "b", "uid-b")
    assert story.tell("same", ref=other) is not None


def test_events_of_cluster_wide_objects_live_in_default() -> None:
    posting = Story().told("x", ref=ObjectRef("v1", "PersistentVolume", "", "pv"))  # type: ignore[arg-type]
    assert (posting.namespace, posting.body["metadata"]["namespace"]) == ("default", "default")
    assert posting.body["involvedObject"] == {"apiVersion": "v1", "kind": "PersistentVolume", "name": "pv"}


def test_names_and_messages_fit() -> None:
    posting = Story().told("m" * 10_000, ref=ObjectRef("v1", "PersistentVolume", "", "p" * 253))  # type: ignore[arg-type]
    assert len(posting.name) <= 253
    assert len(posting.body["message"]) == 4096
    story = Story()
    for number in range(12):
        assert len(story.told(f"{number}" + "m" * 4094).body["message"]) <= 4096


def test_a_long_message_keeps_its_head_and_its_tail() -> None:
    """Where a driver passes on what its tool said, the cause comes last."""
    message = Story().told("lvcreate failed: " + "m" * 5000 + ": no space left").body["message"]
    assert message.startswith("lvcreate failed: mm") and message.endswith("mm: no space left")
    assert Story().told("m" * 4096).body["message"] == "m" * 4096


def test_long_messages_that_differ_in_one_letter_are_two() -> None:
    story = Story()
    assert story.told("m" * 2000 + "1" + "m" * 2000).name != story.told("m" * 2000 + "2" + "m" * 2000).name


def test_memory_is_bounded() -> None:
    story = Story(most_kept=8)
    for number in range(100):
        story.tell("x", ref=ObjectRef("v1", "PersistentVolume", "", f"pv-{number}"))
    correlator = story.correlator
    assert [len(kept._items) for kept in (correlator._buckets, correlator._similar, correlator._told)] == [8, 8, 8]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.floats(0, 400)), max_size=80))
def test_counts_never_fall_and_names_are_never_given_twice(history: list[tuple[str, int, float]]) -> None:
    story, counts = Story(), dict[str, int]()
    for name, number, pause in history:
        story.now += pause
        posting = story.tell(f"m{number}", ref=ObjectRef("v1", "PersistentVolumeClaim", "ns", name, name))
        if posting is not None:
            assert posting.body["count"] > counts.get(posting.name, 0)
            assert posting.again or posting.name not in counts
            counts[posting.name] = posting.body["count"]


def test_what_is_told_once_is_not_asked_for_again_while_it_is_there() -> None:
    """A node that hears of a claim again and again found each time that nobody takes it, and asked for the same Event each time."""
    story = Story()
    assert story.told("no room", once="a.waits").name == "a.waits"
    for _ in range(10):
        story.now += 300.0
        assert story.tell("no room", once="a.waits") is None
        assert story.tell("less room", once="a.waits") is None, "whatever it says by now"
    assert story.tell("no room", once="b.waits") is not None
    story.now += 700.0
    assert story.told("no room", once="a.waits").name == "a.waits", "it has expired"
