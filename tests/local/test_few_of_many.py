"""Of many things a few are kept, and each has its turn sooner or later."""

import random

from sidecar.local.few_of_many import FewOfMany


def chosen(most: int, seed: int, **groups: int) -> list[str]:
    few = FewOfMany[str](most, random.Random(seed).random)
    for group, size in groups.items():
        for number in range(size):
            few.note(group, f"{group}-{number}")
    return few.chosen()


def test_all_are_chosen_where_they_are_few() -> None:
    assert sorted(chosen(5, 1, a=3, b=2)) == ["a-0", "a-1", "a-2", "b-0", "b-1"]
    assert chosen(5, 1) == []


def test_each_of_many_is_chosen_sooner_or_later() -> None:
    rounds = [chosen(10, seed, a=100) for seed in range(150)]
    assert all(len(set(one)) == 10 for one in rounds)
    assert {item for one in rounds for item in one} == {f"a-{number}" for number in range(100)}


def test_a_group_with_many_leaves_their_share_to_those_with_few() -> None:
    for seed in range(20):
        assert set(chosen(10, seed, loud=1000, b=1, c=2)) >= {"b-0", "c-0", "c-1"}
