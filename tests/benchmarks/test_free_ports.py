"""Ports for programs that a test or a benchmark starts."""

from __future__ import annotations

from hack.lib.control_plane import free_ports


def test_no_port_is_given_twice_though_nobody_listens_yet() -> None:
    given = [port for _ in range(300) for port in free_ports(2)]
    assert len(set(given)) == len(given)
