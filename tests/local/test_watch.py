"""Rooms that keep the same kind of object share one watch of it."""

from typing import Any

from sidecar.kube.api import CLAIMS, NODES, Change, Resource
from sidecar.kube.event_prefix import EventPrefix, reads_all
from sidecar.kube.store import Store
from sidecar.local.watch import Watch, join

PREFIX = EventPrefix("a", "u", "1")


def watch(store: Store[str], heard: list[str], name: str, resource: Resource = CLAIMS, **more: Any) -> Watch[str]:
    return Watch(resource=resource, store=store, wakes=lambda change: heard.append(name), **more)


def test_each_store_has_one_watch_in_the_order_in_which_rooms_named_them() -> None:
    claims, nodes, heard = Store[str](), Store[str](), list[str]()
    joined = join([watch(claims, heard, "one"), watch(nodes, heard, "node", NODES), watch(claims, heard, "two")])
    assert [item.resource for item in joined] == [CLAIMS, NODES]
    joined[0].wakes(Change("a", None, "x"))
    assert heard == ["one", "two"]


def test_the_record_of_the_room_that_comes_first_is_kept() -> None:
    store, heard = Store[str](), list[str]()
    first = watch(store, heard, "one", project=lambda obj: "whole" if obj["ours"] else None)
    woken = watch(store, heard, "woken only")
    second = watch(store, heard, "two", project=lambda obj: "slim" if obj["here"] else None)
    (joined,) = join([first, woken, second])
    assert [joined.project({"ours": ours, "here": here}) for ours, here in ((1, 1), (0, 1), (0, 0))] == ["whole", "slim", None]


def test_an_event_is_skipped_only_if_all_that_have_a_say_agree() -> None:
    store, heard = Store[str](), list[str]()
    for skips, skipped in (((True, None), True), ((True, False), False), ((None, None), False)):
        given = [watch(store, heard, "x", **({} if one is None else {"skip": lambda p, li, one=one: one})) for one in skips]
        (joined,) = join(given)
        assert joined.skip is not None and joined.skip(PREFIX, b"{}") is skipped
    assert join([watch(store, heard, "x"), watch(store, heard, "y")])[0].skip is reads_all


def test_what_one_room_requires_or_waits_for_counts_for_all() -> None:
    store, heard, listed = Store[str](), list[str](), list[str]()
    strict = watch(store, heard, "x", required=True, on_list=lambda: listed.append("x"))
    loose = watch(store, heard, "y", optional=True, awaited=False, on_list=lambda: listed.append("y"))
    (joined,) = join([loose, strict])
    assert (joined.required, joined.optional, joined.awaited) == (True, False, True)
    assert join([watch(store, heard, "x", start_spread=5.0), watch(store, heard, "y")])[0].start_spread == 0.0
    joined.on_list()
    assert listed == ["y", "x"]


def test_labels_are_watched_only_where_all_rooms_are_content_with_them() -> None:
    store, heard = Store[str](), list[str]()
    for named, watched in ((("a", "a"), "a"), (("a", "b"), ""), (("a", ""), "")):
        (joined,) = join([watch(store, heard, "x", watch_selectors=tuple(selector)) for selector in named])
        assert joined.watch_selectors == tuple(watched)
