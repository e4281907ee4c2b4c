"""A list without what need not be read is a list of the others, however it is cut."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kube.event_prefix import EventPrefix
from sidecar.kube.large_objects import LARGE
from sidecar.kube.list_reader import ListReader
from sidecar.kube.list_sieve import ListSieve

LIST_META = {"resourceVersion": "7", "continue": ""}
# Texts that try to look like where one object ends and another begins.
TRICKY = st.sampled_from(["", "a", '},{"metadata":{"name":"', '"},{"metadata":{"name":"x', "\\", '"', "}", "ü", "\u2028"])


def item(name: str, note: str = "") -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid of {name}", "resourceVersion": "5", "annotations": {"note": note}}
    return {"metadata": meta, "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {}}


def as_server_writes(items: Iterable[dict[str, Any]]) -> bytes:
    whole = {"kind": "PersistentVolumeClaimList", "apiVersion": "v1", "metadata": LIST_META, "items": list(items)}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def is_theirs(prefix: EventPrefix, _: bytes) -> bool:
    return prefix.name.startswith("their")


def sifted(raw: bytes, cut: int = 10**9) -> tuple[list[Any], int]:
    """What is read of the list, and how many objects were not."""
    sieve, reader = ListSieve(is_theirs, longest=LARGE), ListReader(what="list x", after="")
    found = [obj for at in range(0, len(raw), cut) for obj in reader.feed(sieve.feed(raw[at : at + cut]))]
    found += reader.feed(sieve.rest())
    left, version, _ = reader.finish()
    assert version == "7"
    return found + left, sieve.left_out


@given(items=st.lists(st.tuples(st.sampled_from(["ours", "theirs"]), TRICKY), max_size=8), cut=st.integers(1, 400))
def test_of_what_is_read_nothing_is_missing_and_nothing_changed(items: list[tuple[str, str]], cut: int) -> None:
    listed = [item(f"{whose}-{number}", note) for number, (whose, note) in enumerate(items)]
    found, left_out = sifted(as_server_writes(listed), cut)
    at_the_ends = (0, len(listed) - 1)
    read = [each for number, each in enumerate(listed) if number in at_the_ends or each["metadata"]["name"].startswith("ours")]
    assert found == read and left_out == len(listed) - len(read)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(json.dumps({"metadata": LIST_META, "items": [item("theirs")] * 5}).encode(), id="with spaces"),
        pytest.param(as_server_writes({"kind": "Claim", **item("theirs")} for _ in range(5)), id="with kinds"),
        pytest.param(as_server_writes({"metadata": {"uid": "u", "name": "theirs"}} for _ in range(5)), id="in another order"),
    ],
)
def test_what_is_written_otherwise_is_read(raw: bytes) -> None:
    for cut in (7, 10**9):
        found, left_out = sifted(raw, cut)
        assert found == json.loads(raw)["items"] and left_out == 0
