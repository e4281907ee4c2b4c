"""When a stream is left alone for a moment, and that it costs a process no wake-up."""

import itertools
import select
import socket

from sidecar.kube.read_batching import SHORTEST, ReadBatching, delay_wakeups, wake_at_once

LONGEST = 0.32


def test_a_stream_that_speaks_now_and_then_is_read_as_it_comes() -> None:
    stream = ReadBatching()
    assert [stream.delay(50, now) for now in (1.0, 1.1, 7.0)] == [0.0, 0.0, 0.0]


def test_the_second_event_of_a_burst_waits_and_the_busier_it_is_the_longer() -> None:
    stream, now = ReadBatching(LONGEST), 5.001
    pauses = []
    for _ in range(12):
        pauses.append(stream.delay(30, now))
        now += pauses[-1] + 0.001
    assert pauses[0] == 0.0
    assert max(pauses) <= LONGEST and pauses[-1] > LONGEST / 2
    for _ in range(12):
        pauses.append(stream.delay(1, now))
        now += pauses[-1] + 0.001
    assert pauses[-1] <= SHORTEST, "few lines each time: nothing is gained by waiting long"
    assert stream.delay(30, now + 1.0) == 0.0, "quiet in between"


def test_streams_of_one_process_wake_it_together() -> None:
    streams, now = [ReadBatching(LONGEST), ReadBatching(LONGEST)], 9.0
    ends: list[set[float]] = []
    for _ in range(10):
        ends.append({round(now + offset + stream.delay(30, now + offset), 6) for stream, offset in zip(streams, (0.0, 0.003), strict=True)})
        now = max(ends[-1]) + 0.001
    assert all(len(together) == 1 for together in ends[2:])
    assert all(later > earlier for earlier, later in itertools.pairwise(min(each) for each in ends))


def test_what_comes_meanwhile_wakes_nobody_and_is_there_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            delay_wakeups(_Transport(near))
            far.send(b"x" * 1000)
            assert not select.select([near], [], [], 0.1)[0]
            wake_at_once(_Transport(near))
            assert select.select([near], [], [], 1.0)[0]
            near.recv(4096)
            delay_wakeups(_Transport(near))
        assert select.select([near], [], [], 1.0)[0], "the end is heard at once"
    delay_wakeups(None)


class _Transport:
    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._wire if name == "socket" else None
