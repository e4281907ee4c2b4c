"""The machine that a mark names is read back as it was written, and of nothing else is one read."""

import pytest

from sidecar.drain.machine_mark import Machine, parse, text

UID = "0b5fdf0e-7a1c-4f7e-9d3a-0c9b1a2d3e4f"


@pytest.mark.parametrize("node", ["a", "n1", "node-1.example.com", "0", "a" * 253])
@pytest.mark.parametrize("uid", [UID, "u", "uid-n1", "f" * 63])
def test_what_is_written_is_read_back(node: str, uid: str) -> None:
    machine = Machine(node, uid)
    assert text(machine) == f"{node}/{uid}"
    assert parse(text(machine)) == machine


@pytest.mark.parametrize(
    "written",
    [
        "",
        "/",
        "n1",
        "n1/",
        f"/{UID}",
        f"n1/{UID}/",
        f"n1/{UID}/x",
        f"n1//{UID}",
        f"N1/{UID}",
        f"-n1/{UID}",
        f"n1./{UID}",
        f"n 1/{UID}",
        f" n1/{UID}",
        f"n1/{UID}\n",
        f"n1\n/{UID}",
        f"n1/-{UID}",
        "n1/a b",
        "n1/ü",
        "nö/u",
        "n1/é",
        f"{'a' * 254}/u",
        f"n1/{'f' * 64}",
        "a" * 262_144,
        "/" * 317,
        f"n1\\{UID}",
        '{"node":"n1"}',
        "n1/\x00",
    ],
)
def test_what_is_no_machine_is_none(written: str) -> None:
    assert parse(written) is None


def test_two_machines_of_one_name_are_two() -> None:
    assert parse("n1/a") != parse("n1/b")
