"""Accepting itself; what becomes of the connections is in `test_connections`."""

import asyncio
import contextlib
import errno
import itertools
import socket
from unittest.mock import Mock

import pytest

from sidecar.observe.listening import Listening
from tests.harness.loops import real, until


class Taken(asyncio.Protocol):
    def __init__(self, all_: list[asyncio.BaseTransport]) -> None:
        self._all = all_

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._all.append(transport)


def test_a_flood_is_taken_in_turns() -> None:
    """As many wait as the kernel holds, and the event loop does other things in between."""

    async def main() -> list[int]:
        taken: list[asyncio.BaseTransport] = []
        accepting = Listening(socket.create_server(("127.0.0.1", 0), backlog=128), lambda: Taken(taken), give_way=lambda: None)
        with contextlib.ExitStack() as opened:
            for _ in range(100):
                client = opened.enter_context(socket.socket())
                client.connect(("127.0.0.1", accepting.port))
            by_turn = [0]
            while len(taken) < 100:
                await asyncio.sleep(0)
                by_turn.append(len(taken))
        await accepting.close()
        for transport in taken:
            transport.abort()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return [after - before for before, after in itertools.pairwise(by_turn)]

    assert max(asyncio.run(main())) <= 4


@pytest.mark.parametrize("number", [errno.ENETDOWN, errno.EPERM, errno.ENOBUFS, errno.EMFILE])
@real
async def test_a_failure_that_stays_is_not_tried_without_a_pause(number: int) -> None:
    listening = Mock(wraps=socket.create_server(("127.0.0.1", 0)))
    listening.accept.side_effect = OSError(number, "so it is")
    gave_way = Mock()
    accepting = Listening(listening, asyncio.Protocol, give_way=gave_way)
    with socket.socket() as client:
        client.connect(("127.0.0.1", accepting.port))
        await until(lambda: listening.accept.called)
        accepts = listening.accept.call_count
        for _ in range(100):  # without a pause each turn would try again
            await asyncio.sleep(0)
        assert listening.accept.call_count < accepts + 100
        await until(lambda: listening.accept.call_count > accepts)
    await accepting.close()
    assert gave_way.call_count >= listening.accept.call_count / 2
