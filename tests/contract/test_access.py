"""Who is asking, and what a server answers to somebody who asks what he may do."""

import asyncio

import pytest

from sidecar.kube.api import ACCESS_REVIEWS, CLAIMS, CONFIG_MAPS, NODES, VOLUMES
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import Forbidden, Invalid, Unauthorized
from sidecar.rights.asking_io import ask
from sidecar.rights.rights import Account, Right
from tests.contract.conftest import Connect, Server
from tests.contract.objects import config_map, make_account
from tests.harness.coroutines import until

GRANTED = {Right("list", CLAIMS, own_namespace=True), Right("patch", CONFIG_MAPS, own_namespace=True)}
NOT_GRANTED = {
    Right("list", CLAIMS),
    Right("update", CLAIMS, own_namespace=True),
    Right("patch", VOLUMES),
    Right("patch", VOLUMES, own_namespace=True),
    Right("patch", NODES, "status"),
}
RULES = (
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
)


@pytest.fixture
def asker(server: Server, connect: Connect, runner: asyncio.Runner, api: KubeClient, namespace: str) -> KubeClient:
    """A service account with a Role, which names a resource without namespace too. That grants nothing."""
    runner.run(make_account(api, namespace, "asker", *RULES))
    client = connect(kubeconfig=str(server.kubeconfig_for(namespace=namespace, service_account="asker")))

    async def granted() -> bool:
        return (await ask(client, GRANTED, namespace=namespace)).allowed == GRANTED

    runner.run(until(granted, "the server has learnt of the new role, by a watch of its own"))
    return client


async def test_a_role_allows_what_it_says_and_the_refusal_names_verb_and_resource(asker: KubeClient, namespace: str) -> None:
    assert (await asker.list_page(CLAIMS, namespace=namespace)).items == []
    with pytest.raises(Forbidden, match=r'list persistentvolumes: .*cannot list resource "persistentvolumes"'):
        await asker.list_page(VOLUMES)
    with pytest.raises(Forbidden, match=r'list persistentvolumeclaims: .*cannot list resource "persistentvolumeclaims"'):
        await asker.list_page(CLAIMS)
    with pytest.raises(Forbidden, match=r'cannot watch resource "persistentvolumeclaims"'):
        async for _ in asker.watch(CLAIMS, namespace=namespace, resource_version="1"):
            pass
    with pytest.raises(Forbidden, match=r'cannot create resource "configmaps"'):
        await asker.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Forbidden, match=r'cannot get resource "nodes"'):
        await asker.get(NODES, "none")  # also of what does not exist


async def test_anybody_known_may_ask_for_the_version(asker: KubeClient) -> None:
    assert await asker.server_version()


async def test_a_token_that_was_never_issued(stranger: KubeClient) -> None:
    with pytest.raises(Unauthorized, match="list persistentvolumes: Unauthorized"):
        await stranger.list_page(VOLUMES)
    with pytest.raises(Unauthorized):
        async for _ in stranger.watch(VOLUMES, resource_version="1"):
            pass
    with pytest.raises(Unauthorized):
        await stranger.server_version()


async def test_each_right_is_answered_as_the_request_would_be(asker: KubeClient, namespace: str) -> None:
    found = await ask(asker, GRANTED | NOT_GRANTED, namespace=namespace)
    assert (found.allowed, found.refused) == (GRANTED, NOT_GRANTED)


async def test_an_administrator_may_do_everything(api: KubeClient, namespace: str) -> None:
    assert (await ask(api, GRANTED | NOT_GRANTED, namespace=namespace)).refused == set()


async def test_an_administrator_is_told_of_somebody_else(asker: KubeClient, api: KubeClient, namespace: str) -> None:
    """The same answers as that one gets himself."""
    found = await ask(api, GRANTED | NOT_GRANTED, namespace=namespace, account=Account(namespace, "asker"))
    assert (found.allowed, found.refused) == (GRANTED, NOT_GRANTED)


async def test_who_is_no_administrator_is_told_of_nobody_else(asker: KubeClient, namespace: str) -> None:
    with pytest.raises(Forbidden, match="subjectaccessreviews"):
        await ask(asker, GRANTED, namespace=namespace, account=Account(namespace, "default"))


async def test_nobody_known_is_not_answered(stranger: KubeClient) -> None:
    with pytest.raises(Unauthorized):
        await ask(stranger, [Right("patch", VOLUMES)])


async def test_a_review_of_nothing_is_refused(api: KubeClient) -> None:
    with pytest.raises(Invalid, match="exactly one of nonResourceAttributes or resourceAttributes"):
        await api.create(ACCESS_REVIEWS, {"metadata": {}, "spec": {}})
