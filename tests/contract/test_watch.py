"""Watches: from a version on, every change once and in order, in the words of the selection that was asked for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from sidecar.kube.api import CONFIG_MAPS, MERGE_PATCH, VOLUMES, WatchEvent
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import ApiError
from tests.contract.objects import config_map, volume


async def _hear(api: KubeClient, namespace: str, count: int, **how: str) -> list[WatchEvent]:
    """That many events, without bookmarks."""
    events: list[WatchEvent] = []
    async with aclosing(api.watch(CONFIG_MAPS, namespace=namespace, **how)) as stream:
        async for event in stream:
            if event.type != "BOOKMARK":
                events.append(event)
            if len(events) == count:
                break
    return events


def _told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"]["name"]) for event in events]


async def _version(api: KubeClient, namespace: str) -> str:
    return (await api.list_page(CONFIG_MAPS, namespace=namespace)).resource_version


async def _relabel(api: KubeClient, namespace: str, name: str, **labels: str | None) -> None:
    await api.patch(CONFIG_MAPS, name, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH, namespace=namespace)


async def test_every_change_after_the_version(api: KubeClient, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("before"), namespace=namespace)
    version = await _version(api, namespace)
    hearing = asyncio.create_task(_hear(api, namespace, 3, resource_version=version))
    made = await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    changed = await api.replace(CONFIG_MAPS, made | {"data": {"x": "1"}}, name="a", namespace=namespace)
    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    events = await hearing
    assert _told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [event.object for event in events[:2]] == [made, changed]


async def test_a_deleted_object_is_shown_as_it_was_last_with_a_newer_version(api: KubeClient, namespace: str) -> None:
    version = await _version(api, namespace)
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    _, deleted = await _hear(api, namespace, 2, resource_version=version)
    assert deleted.object["data"] == {"x": "1"}
    assert deleted.object["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(deleted.resource_version) > int(made["metadata"]["resourceVersion"])


async def test_resuming_gives_what_was_missed_and_nothing_twice(api: KubeClient, namespace: str) -> None:
    version = await _version(api, namespace)
    for name in "abcd":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    events = await _hear(api, namespace, 2, resource_version=version)
    events += await _hear(api, namespace, 2, resource_version=events[-1].resource_version)
    assert _told(events) == [("ADDED", name) for name in "abcd"]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions))


async def test_leaving_the_selection_looks_like_a_deletion_and_entering_like_a_birth(api: KubeClient, namespace: str) -> None:
    version = await _version(api, namespace)
    await api.create(CONFIG_MAPS, config_map("a", labels={"mine": "yes"}), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("foreign"), namespace=namespace)
    await _relabel(api, namespace, "a", other="1")
    await _relabel(api, namespace, "a", mine=None)
    await _relabel(api, namespace, "a", other="2")
    await _relabel(api, namespace, "a", mine="yes")
    events = await _hear(api, namespace, 4, resource_version=version, label_selector="mine=yes")
    assert _told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions)), "also the deletion carries the version of the change that caused it"


async def test_what_leaves_the_selection_is_shown_as_it_was_before_so_that_nobody_can_tell_it_from_what_is_gone(
    api: KubeClient, namespace: str
) -> None:
    version = await _version(api, namespace)
    made = await api.create(CONFIG_MAPS, config_map("a", labels={"node": "n1"}, x="1"), namespace=namespace)
    changed = await api.patch(
        CONFIG_MAPS, "a", {"metadata": {"labels": {"node": "n2"}}, "data": {"x": "2"}}, content_type=MERGE_PATCH, namespace=namespace
    )
    _, left = await _hear(api, namespace, 2, resource_version=version, label_selector="node in (n1,several)")
    assert (left.type, left.resource_version) == ("DELETED", changed["metadata"]["resourceVersion"])
    assert (left.object["metadata"]["labels"], left.object["data"]) == (made["metadata"]["labels"], {"x": "1"})
    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    _, gone = await _hear(api, namespace, 2, resource_version=version, label_selector="node in (n2)")
    assert (gone.type, gone.object["metadata"]["labels"], set(gone.object)) == ("DELETED", {"node": "n2"}, set(left.object))


async def test_two_selections_that_have_nothing_in_common_tell_each_change_between_them(api: KubeClient, namespace: str) -> None:
    """As volumes are watched: by the own label, and without one."""
    version = await _version(api, namespace)
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    for node in ("n1", "n2", "several", None):
        await _relabel(api, namespace, "a", **{"example.com/node": node})
    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    own = await _hear(api, namespace, 4, resource_version=version, label_selector="example.com/node in (n1,several)")
    none = await _hear(api, namespace, 4, resource_version=version, label_selector="!example.com/node")
    assert [event.type for event in own] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    assert [event.type for event in none] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    assert [event.resource_version for event in (own[0], own[3])] == [event.resource_version for event in (none[1], none[2])]


async def test_a_selection_that_hears_nothing_learns_how_far_the_others_have_come(brief: KubeClient, namespace: str) -> None:
    version = await _version(brief, namespace)
    heard: list[WatchEvent] = []
    async with _changes_elsewhere(brief):
        async for event in brief.watch(
            CONFIG_MAPS, namespace=namespace, resource_version=version, label_selector="example.com/node in (n9)"
        ):
            heard.append(event)
    assert {event.type for event in heard} == {"BOOKMARK"}
    assert int(heard[-1].resource_version) > int(version)


async def test_one_object_by_its_name(api: KubeClient, namespace: str) -> None:
    version = await _version(api, namespace)
    for name in "ab":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    await api.delete(CONFIG_MAPS, "b", namespace=namespace)
    events = await _hear(api, namespace, 2, resource_version=version, field_selector="metadata.name=b")
    assert _told(events) == [("ADDED", "b"), ("DELETED", "b")]


async def test_a_deletion_that_waits_for_finalizers_is_a_change_first(api: KubeClient, namespace: str) -> None:
    name = f"pv-{namespace}"
    version = (await api.list_page(VOLUMES)).resource_version
    await api.create(VOLUMES, volume(name))
    await api.delete(VOLUMES, name)
    await api.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    told = []
    async with aclosing(api.watch(VOLUMES, resource_version=version, field_selector=f"metadata.name={name}")) as stream:
        async for event in stream:
            told.append((event.type, "deletionTimestamp" in event.object["metadata"]))
            if event.type == "DELETED":
                break
    assert told == [("ADDED", False), ("MODIFIED", True), ("DELETED", True)]


async def test_objects_of_a_watch_say_what_they_are(api: KubeClient, namespace: str) -> None:
    version = await _version(api, namespace)
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    (event,) = await _hear(api, namespace, 1, resource_version=version)
    assert (event.object["apiVersion"], event.object["kind"]) == ("v1", "ConfigMap")


async def test_a_bookmark_before_the_orderly_end_and_the_watch_goes_on_from_it(brief: KubeClient, namespace: str) -> None:
    version = await _version(brief, namespace)
    bookmarks = []
    async with _changes_elsewhere(brief):
        async for event in brief.watch(CONFIG_MAPS, namespace=namespace, resource_version=version):
            assert event.type == "BOOKMARK"
            bookmarks.append(event)
    assert bookmarks, "a watch that hears nothing must learn how far the others have come"
    assert int(bookmarks[-1].resource_version) > int(version)
    await brief.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    assert _told(await _hear(brief, namespace, 1, resource_version=bookmarks[-1].resource_version)) == [("ADDED", "a")]


@asynccontextmanager
async def _changes_elsewhere(api: KubeClient) -> AsyncIterator[None]:
    """One after the other: a bookmark only tells of what came after its watch had begun."""
    over = asyncio.Event()

    async def change() -> None:
        while not over.is_set():
            await api.create(CONFIG_MAPS, config_map("elsewhere"), namespace="default")
            await api.delete(CONFIG_MAPS, "elsewhere", namespace="default")
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        yield
        over.set()


async def test_a_version_that_is_no_version_is_refused(api: KubeClient, namespace: str) -> None:
    with pytest.raises(ApiError):  # with status 500, of all things
        await _hear(api, namespace, 1, resource_version="nonsense")
