import pytest

from sidecar.kube.page_sizes import AIM, MOST_BYTES, MOST_OBJECTS, is_too_large, next_limit, smaller

MIB = 2**20


@pytest.mark.parametrize(
    ("limit", "count", "size", "expected"),
    [
        pytest.param(500, 500, 500 * 2_400, 500, id="objects-of-usual-size"),
        pytest.param(500, 500, 500 * 10_000, 209, id="nodes-with-many-images"),
        pytest.param(62, 62, 62 * 100_000, 20, id="large"),
        pytest.param(7, 7, 7 * MIB, 2, id="as-large-as-they-get"),
        pytest.param(1, 1, 9 * MIB, 1, id="one-that-is-larger-than-a-page-should-be"),
        pytest.param(1, 1, 100, 2, id="grows-slowly"),
        pytest.param(400, 400, 100, 500, id="and-not-for-ever"),
        pytest.param(7, 0, 100, 7, id="an-empty-page-says-nothing"),
        pytest.param(500, 3, 3 * 2_400, 500, id="a-short-list"),
        pytest.param(500, 0, 0, 500, id="nothing-at-all"),
    ],
)
def test_the_next_page_is_as_large_as_aimed_at_if_objects_go_on_alike(limit: int, count: int, size: int, expected: int) -> None:
    assert next_limit(limit, count=count, size=size) == expected
    assert expected <= 2 or expected * size // max(1, count) <= AIM


def test_what_was_too_large_is_soon_small_enough_and_never_nothing() -> None:
    limit, asked = MOST_OBJECTS, 0
    while is_too_large(limit, count=limit, size=limit * 3 * MIB // 2):
        limit, asked = smaller(limit), asked + 1
    assert (limit, asked) == (1, 3) or limit * 3 * MIB // 2 <= MOST_BYTES
    assert asked <= 3
    assert smaller(1) == 1


def test_a_page_that_the_server_does_not_limit_is_read_to_its_end() -> None:
    assert is_too_large(500, count=500, size=MOST_BYTES + 1)
    assert not is_too_large(500, count=501, size=MOST_BYTES + 1)
    assert not is_too_large(1, count=0, size=100 * MIB), "there is nothing smaller to ask for"
    assert not is_too_large(0, count=9, size=100 * MIB), "no limit was asked for"
