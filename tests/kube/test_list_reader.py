"""A list means the same however it is cut, and what is no list is never taken for one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kube import list_reader
from sidecar.kube.errors import Unavailable
from sidecar.kube.list_reader import ListReader

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def read(raw: bytes, *, cut: int = 10**9, after: str = "") -> tuple[list[Any], str, str]:
    reader = ListReader(what="list x", after=after)
    found = [obj for at in range(0, len(raw), cut) for obj in reader.feed(raw[at : at + cut])]
    left, version, token = reader.finish()
    assert reader.size == len(raw)
    assert reader.count == len(found) + len(left)
    return found + left, version, token


@given(items=st.lists(VALUES, max_size=4), cut=st.integers(1, 50), backwards=st.booleans(), wide=st.booleans(), space=st.booleans())
def test_what_is_listed_is_read_however_it_is_cut(items: list[Any], cut: int, backwards: bool, wide: bool, space: bool) -> None:
    """Custom resources come with their fields in the order of the alphabet: the objects before the metadata."""
    fields = [("kind", "List"), ("metadata", {"resourceVersion": "7", "continue": "t"}), ("items", items)]
    whole = dict(reversed(fields) if backwards else fields)
    text = json.dumps(whole, ensure_ascii=not wide, indent=1 if space else None, separators=(",", ":"))
    assert read(text.encode("utf-8", "surrogatepass"), cut=cut) == (items, "7", "t")


@pytest.mark.parametrize("items", [b"", b',"items":null', b',"items":[]', b',"items" : [ ]', b',"items":{}'])
def test_a_list_without_items_is_empty(items: bytes) -> None:
    for cut in (1, 1000):
        assert read(b'{"metadata":{"resourceVersion":"7"}%s}\n' % items, cut=cut) == ([], "7", "")


META = b'"metadata":{"resourceVersion":"7"}'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>\n",
        b"[]",
        b"{}",
        b"1",
        b'{"items":[]}',
        b'{"metadata":{},"items":[]}',
        b'{"metadata":null,"items":[{}]}',
        b'{"metadata":{"resourceVersion":7},"items":[]}',
        b'{"metadata":{"resourceVersion":"7","continue":5},"items":[]}',
        b"{%s" % META,
        b"{%s,}" % META,
        b"{%s}}" % META,
        b'{%s"items":[]}' % META,
        b'{%s,"items":[{}' % META,
        b'{%s,"items":[{},]}' % META,
        b'{%s,"items":[,]}' % META,
        b'{%s,"items":[{}{}]}' % META,
        b'{%s,"items":[{"a":}]}' % META,
        b'{%s,"items":[{"a":"\xff"}]}' % META,
        b'{%s,"items":[{"a":"\xc3' % META,
        b'{%s,"items":[%s' % (META, b'{"a":' * 50_000),
        b'{"items":[],"metadata":[1]}',
        b'{"items":[],"metadata":{"resourceVersion":""}}',
        b'{"items":[],"metadata":{"resourceVersion":{"a":1}}}',
        b'{"items":[],"metadata":{"resourceVersion":"5","continue":5}}',
        b'{"items":{"a":1},"metadata":{"resourceVersion":"5"}}',
        b'{"items":"none","metadata":{"resourceVersion":"5"}}',
        b'{"kind":"Status","metadata":{},"code":200}',
    ],
)
@pytest.mark.parametrize("cut", [1000, 3])
def test_what_is_no_list_is_never_an_empty_one(raw: bytes, cut: int) -> None:
    with pytest.raises(Unavailable, match=r"^list x: the answer is not a list") as told:
        read(raw, cut=cut if len(raw) < 1000 else 100_000)
    assert len(str(told.value)) < 400


def test_nothing_is_handed_over_of_what_says_first_that_it_is_no_list() -> None:
    reader = ListReader(what="list x", after="")
    with pytest.raises(Unavailable):
        next(reader.feed(b'{"metadata":{},"items":[{"a":1},'))


def test_a_list_without_end_is_given_up() -> None:
    fields = (b'"metadata":{"resourceVersion":"7","continue":"t"}', b'"items":[{}]')
    for raw in (b"{%s,%s}" % fields, b"{%s,%s}" % fields[::-1]):
        assert read(raw, after="s")[2] == "t"
        with pytest.raises(Unavailable, match=r"list x: the list has no end: .* same continue token"):
            read(raw, after="t")


def test_of_what_was_handed_over_nothing_is_kept() -> None:
    reader = ListReader(what="list x", after="")
    list(reader.feed(b'{%s,"items":[{}' % META))
    for _ in range(100):
        assert len(list(reader.feed(b',{"a":"%s"}' % (b"x" * 10_000)))) == 1
        assert len(reader._raw) + len(reader._text) < 100


def test_one_object_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_reader, "LONGEST_OBJECT", 100_000)
    raw = b'{%s,"items":[{"a":"%s"}]}'
    assert len(read(raw % (META, b"x" * 99_000), cut=1000)[0]) == 1
    with pytest.raises(Unavailable, match="more than 100000 bytes"):
        read(raw % (META, b"x" * 10_000_000), cut=1000)


def test_a_secret_is_not_quoted() -> None:
    reader = ListReader(what="list secrets ns", after="")
    list(reader.feed(b'{"data":"hunter2"}'))
    with pytest.raises(Unavailable) as told:
        reader.finish()
    assert "hunter2" not in str(told.value)


SEAMS = (b"", b"{", b'{"metadata"', b'{"metadata":', b"{%s" % META, b"{%s," % META, b'{%s,"items":' % META, b'{%s,"items":[' % META)
INNER = tuple(b'{%s,"items":%s' % (META, begin) for begin in (b"[{}", b"[{},", b"[]", b"[{}]"))


@pytest.mark.parametrize("begin", [*SEAMS, *INNER])
def test_spaces_have_a_bound_wherever_they_stand(begin: bytes) -> None:
    """A few packed bytes unfold to very many of them. Were all looked at anew with each piece, this would take hours."""
    reader = ListReader(what="list x", after="")
    list(reader.feed(begin))
    with pytest.raises(Unavailable, match="more than 10485760 bytes"):
        for _ in range(3 * 2**10):
            list(reader.feed(b" " * 2**12))
