"""Parts of sentences."""

from sidecar.drain.wording import first_few


def test_of_many_the_first_few_are_named() -> None:
    assert (first_few(["a"]), first_few(["a", "b", "c"]), first_few(list("abcde"))) == ("a", "a, b, c", "a, b, c and 2 more")
