"""History: what a watch can be told, what is forgotten, and pages of a list that is long gone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Cluster, Refused
from hack.sim.cluster.reading import INITIAL_EVENTS_END, Query, Watch
from sidecar.kube.api import CONFIG_MAPS, MERGE_PATCH, NODES
from tests.contract.objects import config_map
from tests.harness.cluster_tools import new_cluster, refusal


def _watch(cluster: Cluster, **query: object) -> Watch:
    return cluster.watch(CONFIG_MAPS, Query(**query), wake=lambda: None)  # type: ignore[arg-type]


def _make(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.create(CONFIG_MAPS, config_map(name), namespace="default")


def _names(watch: Watch) -> list[tuple[str, str]]:
    return [(told.type, told.stored.obj["metadata"]["name"]) for told in watch.take()]


def test_a_watch_is_woken_by_its_own_kind_only() -> None:
    cluster, woken = new_cluster(), []
    watch = cluster.watch(CONFIG_MAPS, Query(version=str(cluster.revision)), wake=lambda: woken.append(1))
    cluster.create(NODES, {"metadata": {"name": "n"}})
    assert not woken and not watch.waiting
    _make(cluster, "a")
    assert woken and watch.waiting and _names(watch) == [("ADDED", "a")]
    watch.close()
    _make(cluster, "b")
    assert len(woken) == 1


def test_from_no_version_a_watch_begins_with_what_there_is() -> None:
    cluster = new_cluster()
    _make(cluster, "a")
    for version in ("", "0"):
        watch = _watch(cluster, version=version)
        assert _names(watch) == [("ADDED", "a")]
        assert not watch.waiting


def test_a_watch_that_lists_says_when_it_has_told_all() -> None:
    cluster = new_cluster()
    _make(cluster, "a")
    added, bookmark = _watch(cluster, initial_events=True, match="NotOlderThan").take()
    assert (added.type, bookmark.type) == ("ADDED", "BOOKMARK")
    assert bookmark.stored.obj["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}


def test_forgotten_versions_are_gone_for_watches_pages_and_exact_lists() -> None:
    cluster = new_cluster()
    _make(cluster, "a", "b")
    page = cluster.list(CONFIG_MAPS, Query(limit=1))
    old = str(page.revision)
    _make(cluster, "c")
    cluster.compact()
    assert refusal(lambda: _watch(cluster, version=old))[:2] == (410, "Expired")
    assert refusal(lambda: cluster.list(CONFIG_MAPS, Query(version=old, match="Exact")))[:2] == (410, "Expired")
    with pytest.raises(Refused) as caught:
        cluster.list(CONFIG_MAPS, Query(limit=1, token=page.token))
    go_on = caught.value.status["metadata"]["continue"]
    rest = cluster.list(CONFIG_MAPS, Query(limit=5, token=go_on))
    assert [item.obj["metadata"]["name"] for item in rest.items] == ["b", "c"], "inconsistent, as the server says, but complete"


def test_a_watch_that_has_heard_everything_outlives_a_compaction() -> None:
    cluster = new_cluster()
    watch = _watch(cluster, version=str(cluster.revision))
    cluster.compact()
    _make(cluster, "a")
    assert _names(watch) == [("ADDED", "a")]


def test_who_is_too_slow_is_told_in_the_stream() -> None:
    cluster = new_cluster(history=5)
    watch = _watch(cluster, version=str(cluster.revision))
    _make(cluster, *(f"n{number}" for number in range(20)))
    assert refusal(watch.take)[:2] == (410, "Expired")


def test_only_so_much_is_remembered() -> None:
    cluster = new_cluster(history=5)
    start = cluster.revision
    _make(cluster, *(f"n{number}" for number in range(20)))
    assert refusal(lambda: _watch(cluster, version=str(start)))[0] == 410
    assert len(_names(_watch(cluster, version=str(cluster.revision - 5)))) == 5


def test_a_list_from_the_cache_knows_no_pages() -> None:
    cluster = new_cluster()
    _make(cluster, "a", "b", "c")
    assert len(cluster.list(CONFIG_MAPS, Query(limit=1, version="0")).items) == 3
    assert cluster.list(CONFIG_MAPS, Query(limit=1)).meta["remainingItemCount"] == 2


def test_a_version_to_come() -> None:
    assert refusal(lambda: new_cluster().list(CONFIG_MAPS, Query(version="999")))[:2] == (504, "Timeout")


def test_a_line_of_a_watch_and_an_item_of_a_list() -> None:
    cluster = new_cluster()
    version = str(cluster.revision)
    _make(cluster, "a")
    (told,) = _watch(cluster, version=version).take()
    event = json.loads(told.line)
    assert event == {"type": "ADDED", "object": told.stored.obj}
    assert json.loads(told.stored.item) == {key: value for key, value in event["object"].items() if key not in ("kind", "apiVersion")}


steps = st.lists(st.tuples(st.sampled_from(["make", "label", "unlabel", "drop"]), st.sampled_from("abc")), max_size=30)


@given(steps=steps, start=st.integers(0, 30))
def test_a_list_and_its_watch_end_where_a_later_list_begins(steps: list[tuple[str, str]], start: int) -> None:
    """For any selection, from any moment on."""
    cluster = new_cluster()
    for selection in ({}, {"labels": "x=1"}, {"fields": "metadata.name=a"}):
        seen: dict[str, object] = {}
        watch: Watch | None = None
        for number, (verb, name) in enumerate([*steps, ("end", "")]):
            if number == min(start, len(steps)):
                page = cluster.list(CONFIG_MAPS, Query(**selection))
                seen = {item.obj["metadata"]["name"]: item.bare for item in page.items}
                watch = _watch(cluster, version=str(page.revision), **selection)
            _step(cluster, verb, name)
        assert watch is not None
        while watch.waiting:
            for told in watch.take(3):
                key = told.stored.obj["metadata"]["name"]
                assert (key in seen) is (told.type != "ADDED")
                seen.pop(key, None)
                if told.type != "DELETED":
                    seen[key] = told.stored.bare
        assert seen == {item.obj["metadata"]["name"]: item.bare for item in cluster.list(CONFIG_MAPS, Query(**selection)).items}


def _step(cluster: Cluster, verb: str, name: str) -> None:
    there = cluster.store.find(CONFIG_MAPS, name, "default") is not None
    if verb == "make" and not there:
        _make(cluster, name)
    elif verb == "drop" and there:
        cluster.delete(CONFIG_MAPS, name, namespace="default")
    elif verb in ("label", "unlabel") and there:
        labels = {"x": "1" if verb == "label" else None}
        cluster.patch(CONFIG_MAPS, name, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH, namespace="default")


@given(steps=steps)
def test_the_past_can_be_read_as_it_was(steps: list[tuple[str, str]]) -> None:
    cluster, past = new_cluster(), {}
    for verb, name in steps:
        _step(cluster, verb, name)
        past[cluster.revision] = [item.bare for item in cluster.list(CONFIG_MAPS, Query()).items]
    for revision, items in past.items():
        assert [item.bare for item in cluster.list(CONFIG_MAPS, Query(version=str(revision), match="Exact")).items] == items
