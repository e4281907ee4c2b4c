"""The kubelet replaces a token before it expires, and the sidecar goes on with the new one. Alone, this test waits ten minutes."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from sidecar.kube.api import CLAIMS
from sidecar.kube.client import open_client
from sidecar.kube.errors import Unauthorized
from tests.cluster.aging import Aging, Token
from tests.cluster.scenes import Installation, claim

# The server grants a minute for clocks that differ, and remembers for seconds whom it has let in.
LENIENCY = 80


def test_a_rotated_token_is_taken_up(aging: Aging, tmp_path: Path) -> None:
    installation = aging.installation
    before = {node: installation.restarts(node) for node in aging.first}
    time.sleep(max(0.0, max(token.expires for token in aging.first.values()) + LENIENCY - time.time()))
    for node, token in aging.first.items():
        with pytest.raises(Unauthorized):
            _list_claims(installation, token, tmp_path / "old")
        assert aging.now()[node].text != token.text
    installation.apply(*(claim(f"old-{number}") for number in range(5)))
    installation.await_bound("old-", 5)
    installation.delete_claims("old-")
    installation.delete_claims("young-")
    installation.check_books()
    assert {node: installation.restarts(node) for node in before} == before


def _list_claims(installation: Installation, token: Token, file: Path) -> None:
    config = json.loads(installation.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.text}
    file.write_text(json.dumps(config))

    async def ask() -> None:
        async with await open_client(kubeconfig=str(file), environ={}) as kube:
            await kube.list_page(CLAIMS, limit=1)

    asyncio.run(ask())


def test_a_fresh_token_would_have_been_accepted(aging: Aging, tmp_path: Path) -> None:
    """Without that the refusal above would say nothing about age."""
    for token in aging.now().values():
        _list_claims(aging.installation, token, tmp_path / "new")
