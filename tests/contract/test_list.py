"""Lists: selectors, pages that show one moment, and the version a watch may start from."""

import json
from dataclasses import replace

import pytest

from sidecar.kube.api import CAPACITIES, CLAIMS, CONFIG_MAPS, PODS, VOLUMES, KubeApi
from sidecar.kube.errors import BadRequest
from sidecar.kube.event_prefix import EventPrefix
from sidecar.local.raw_filter import is_foreign_volume
from tests.contract.objects import capacity, claim, config_map, volume
from tests.harness import samples


async def _names(api: KubeApi, namespace: str, **selectors: str) -> list[str]:
    page = await api.list_page(CONFIG_MAPS, namespace=namespace, **selectors)
    return [item["metadata"]["name"] for item in page.items]


async def test_an_empty_list_has_a_version_too(api: KubeApi, namespace: str) -> None:
    page = await api.list_page(CLAIMS, namespace=namespace)
    assert page.items == []
    assert int(page.resource_version) > 0
    assert page.continue_token == ""


async def test_a_list_is_at_least_as_new_as_what_it_shows(api: KubeApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    page = await api.list_page(CONFIG_MAPS, namespace=namespace)
    assert page.items == [{key: value for key, value in made.items() if key not in ("kind", "apiVersion")}]
    assert int(page.resource_version) >= int(made["metadata"]["resourceVersion"])


async def test_a_list_after_a_write_shows_it(api: KubeApi, namespace: str) -> None:
    for number in range(20):
        await api.create(CONFIG_MAPS, config_map(f"n{number:02}"), namespace=namespace)
        assert len(await _names(api, namespace)) == number + 1


async def test_pages_show_one_moment(api: KubeApi, namespace: str) -> None:
    for name in "abcde":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    page = await api.list_page(CONFIG_MAPS, namespace=namespace, limit=2)
    first, versions, sizes = page, {page.resource_version}, [len(page.items)]
    found = [item["metadata"]["name"] for item in page.items]
    await api.delete(CONFIG_MAPS, "e", namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("d2"), namespace=namespace)
    while page.continue_token:
        page = await api.list_page(CONFIG_MAPS, namespace=namespace, limit=2, continue_token=page.continue_token)
        versions.add(page.resource_version)
        sizes.append(len(page.items))
        found += [item["metadata"]["name"] for item in page.items]
    assert found == list("abcde")
    assert sizes == [2, 2, 1]
    assert versions == {first.resource_version}
    assert await _names(api, namespace) == ["a", "b", "c", "d", "d2"]


async def test_between_the_first_and_the_last_claims_are_told_apart_before_they_are_read(api: KubeApi, namespace: str) -> None:
    """Both servers write them as the sidecar expects, so that it need not read those of other nodes."""
    made = [await api.create(CLAIMS, claim(name), namespace=namespace) for name in "abcd"]
    asked: list[EventPrefix] = []

    def skip(prefix: EventPrefix, item: bytes) -> bool:
        asked.append(prefix)
        return prefix.name == "b" and json.loads(item.removesuffix(b","))["metadata"]["uid"] == prefix.uid

    page = await api.list_page(CLAIMS, namespace=namespace, skip=skip)
    assert [item["metadata"]["name"] for item in page.items] == ["a", "c", "d"]
    assert [prefix.uid for prefix in asked] == [obj["metadata"]["uid"] for obj in made[1:3]]


async def test_volumes_are_told_apart_before_they_are_read(api: KubeApi) -> None:
    here = samples.here(replace(samples.info(segment={"node": "n2"}), name="driver.example"))
    for name in "abcd":
        await api.create(VOLUMES, volume(f"apart-{name}"))
    found = {item["metadata"]["name"]: item for item in (await api.list_page(VOLUMES)).items}
    foreign: set[str] = set()

    def skip(prefix: EventPrefix, item: bytes) -> bool:
        if is_foreign_volume(item, here):
            foreign.add(prefix.name)
        return False

    assert len((await api.list_page(VOLUMES, skip=skip)).items) == len(found)
    assert {"apart-b", "apart-c"} <= foreign


async def test_a_page_that_holds_all_is_the_last(api: KubeApi, namespace: str) -> None:
    for name in "ab":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    assert (await api.list_page(CONFIG_MAPS, namespace=namespace, limit=2)).continue_token == ""


async def test_a_made_up_continue_token_is_a_bad_request(api: KubeApi, namespace: str) -> None:
    with pytest.raises(BadRequest):
        await api.list_page(CONFIG_MAPS, namespace=namespace, limit=2, continue_token="nonsense")


async def test_label_selectors(api: KubeApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", labels={"tier": "one"}), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("b", labels={"tier": "two", "x": "1"}), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    for selector, expected in {
        "tier=one": ["a"],
        "tier": ["a", "b"],
        "!tier": ["c"],
        "tier!=one": ["b", "c"],
        "tier in (one,two),x=1": ["b"],
        "tier notin (one)": ["b", "c"],
    }.items():
        assert await _names(api, namespace, label_selector=selector) == expected, selector
    with pytest.raises(BadRequest):
        await _names(api, namespace, label_selector="tier in one")


async def test_field_selectors_know_the_name_and_little_else(api: KubeApi, namespace: str) -> None:
    for name in "ab":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    assert await _names(api, namespace, field_selector="metadata.name=a") == ["a"]
    assert await _names(api, namespace, field_selector="metadata.name!=a") == ["b"]
    for resource, selector in ((CLAIMS, "spec.volumeName=x"), (VOLUMES, "status.phase=Bound"), (VOLUMES, "spec.storageClassName=x")):
        with pytest.raises(BadRequest, match=r"field selector|field label"):
            await api.list_page(resource, field_selector=selector)


async def test_all_namespaces_and_one(api: KubeApi, namespace: str) -> None:
    await api.create(CLAIMS, claim(f"only-{namespace}"), namespace=namespace)
    everywhere = await api.list_page(CLAIMS, field_selector=f"metadata.name=only-{namespace}")
    assert [item["metadata"]["namespace"] for item in everywhere.items] == [namespace]
    assert (await api.list_page(CLAIMS, namespace="default", field_selector=f"metadata.name=only-{namespace}")).items == []


@pytest.mark.parametrize(
    "scope",
    [
        {"namespace": "default", "field_selector": "spec.nodeName=none,metadata.name=none"},
        {"namespace": "default", "label_selector": "a=b", "field_selector": "metadata.name=none"},
    ],
    ids=["fields", "labels"],
)
async def test_a_list_of_no_object_tells_how_far_the_server_has_come(api: KubeApi, namespace: str, scope: dict[str, str]) -> None:
    """Whatever was written, and wherever."""
    for name in "ab":
        made = await api.create(CLAIMS, claim(name), namespace=namespace)
        page = await api.list_page(PODS, limit=1, **scope)
        assert page.items == []
        assert int(page.resource_version) >= int(made["metadata"]["resourceVersion"])


async def test_cluster_wide_objects(api: KubeApi, namespace: str) -> None:
    await api.create(VOLUMES, volume(f"pv-{namespace}"))
    assert f"pv-{namespace}" in [item["metadata"]["name"] for item in (await api.list_page(VOLUMES)).items]


async def test_items_of_a_group_resource(api: KubeApi, namespace: str) -> None:
    await api.create(CAPACITIES, capacity(name="a"), namespace=namespace)
    page = await api.list_page(CAPACITIES, namespace=namespace)
    assert [item["capacity"] for item in page.items] == ["10Gi"]
