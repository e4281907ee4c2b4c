"""What a server answers to somebody who asks what he may do."""

import asyncio
from collections.abc import Iterable

import pytest

from sidecar.kube.api import ACCESS_REVIEWS, CLAIMS, CONFIG_MAPS, NODES, VOLUMES
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import Forbidden, Invalid, Unauthorized
from sidecar.rights.asking_io import ask
from sidecar.rights.rights import Account, Right, Rights
from tests.contract.conftest import Connect, Server
from tests.contract.objects import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS

GRANTED = {Right("list", CLAIMS, own_namespace=True), Right("patch", CONFIG_MAPS, own_namespace=True)}
NOT_GRANTED = {
    Right("list", CLAIMS),
    Right("update", CLAIMS, own_namespace=True),
    Right("patch", VOLUMES),
    Right("patch", VOLUMES, own_namespace=True),
    Right("patch", NODES, "status"),
}


@pytest.fixture
def asker(server: Server, connect: Connect, runner: asyncio.Runner, api: KubeClient, namespace: str) -> KubeClient:
    """A service account with a Role, which names a resource without namespace too. That grants nothing."""
    rules = [
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
    ]

    async def make() -> None:
        await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "asker"}}, namespace=namespace)
        await api.create(ROLES, {"metadata": {"name": "asker"}, "rules": rules}, namespace=namespace)
        subject = {"kind": "ServiceAccount", "name": "asker", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asker"}
        await api.create(ROLE_BINDINGS, {"metadata": {"name": "asker"}, "subjects": [subject], "roleRef": role}, namespace=namespace)

    runner.run(make())
    return connect(kubeconfig=str(server.kubeconfig_for(namespace=namespace, service_account="asker")))


@pytest.fixture
def stranger(connect: Connect, impostor: str) -> KubeClient:
    return connect(kubeconfig=impostor)


async def answers(client: KubeClient, rights: Iterable[Right], namespace: str) -> Rights:
    return await ask(client, rights, namespace=namespace)


async def test_each_right_is_answered_as_the_request_would_be(asker: KubeClient, namespace: str) -> None:
    for _ in range(100):  # the server learns of a new role by a watch of its own
        found = await answers(asker, GRANTED | NOT_GRANTED, namespace)
        if found.allowed:
            break
    assert (found.allowed, found.refused) == (GRANTED, NOT_GRANTED)


async def test_an_administrator_may_do_everything(api: KubeClient, namespace: str) -> None:
    assert (await answers(api, GRANTED | NOT_GRANTED, namespace)).refused == set()


async def test_an_administrator_is_told_of_somebody_else(asker: KubeClient, api: KubeClient, namespace: str) -> None:
    """The same answers as that one gets himself."""
    await test_each_right_is_answered_as_the_request_would_be(asker, namespace)
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
