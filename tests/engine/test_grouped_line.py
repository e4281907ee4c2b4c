"""Who comes first where parties of three groups wait."""

import itertools
from collections.abc import Iterator

from sidecar.engine.fair_line import Place, Turn
from sidecar.engine.grouped_line import Group, GroupedLine, Whose


class Crowded:
    """Groups that always wait, each with so many parties."""

    def __init__(self, **parties: int) -> None:
        self.line = GroupedLine[str]()
        self.numbers = itertools.count()
        for group, count in parties.items():
            for number in range(count):
                self.put(Whose(f"{group}-{number}", Group[group.upper()]))

    def put(self, whose: Whose) -> None:
        self.line.put(whose, Place(Turn(0.0, next(self.numbers)), str(whose.party)))

    def turns(self, count: int) -> Iterator[Whose]:
        """Whoever had a turn waits for another one."""
        for _ in range(count):
            if (taken := self.line.take()) is None:
                return
            self.put(taken[0])
            yield taken[0]


def letters(crowded: Crowded, count: int) -> str:
    return "".join(whose.group.name[0] for whose in crowded.turns(count))


def test_what_has_failed_has_every_fourth_turn_while_new_ones_come_without_end() -> None:
    assert letters(Crowded(new=1, later=100), 12) == "NNNLNNNLNNNL"
    assert letters(Crowded(new=100, later=1), 12) == "NNNLNNNLNNNL"


def test_all_that_have_failed_have_their_turn() -> None:
    seen = [whose.party for whose in Crowded(new=7, later=50).turns(200) if whose.group is Group.LATER]
    assert len(seen) == 50 == len(set(seen))


def test_what_is_new_comes_next_whatever_number_has_failed() -> None:
    crowded = Crowded(later=500)
    list(crowded.turns(250))
    crowded.put(Whose("quiet", Group.NEW))
    assert next(crowded.turns(1)).party == "quiet"


def test_the_program_has_every_second_turn_and_no_more() -> None:
    assert letters(Crowded(own=3, new=100), 6) == "ONONON"
    assert letters(Crowded(own=1, new=100, later=100), 16) == "ONONONOL" * 2
    assert letters(Crowded(own=1, later=3), 4) == "OLOL"


def test_alone_each_group_has_all_turns() -> None:
    for group in ("own", "new", "later"):
        assert letters(Crowded(**{group: 2}), 3) == 3 * group[0].upper()


def test_a_group_that_is_closed_costs_the_others_nothing() -> None:
    crowded = Crowded(new=1, later=1)
    crowded.line.close(Group.LATER)
    assert letters(crowded, 5) == "NNNNN"
    crowded.line.open(Group.LATER)
    assert letters(crowded, 4) in ("LNNN", "NNNL")
    only = Crowded(later=1)
    only.line.close(Group.LATER)
    assert (only.line.take(), only.line.next_turn()) == (None, None)


def test_a_party_that_is_paused_is_paused_in_every_group() -> None:
    line = GroupedLine[str]()
    for number, group in enumerate(Group):
        line.put(Whose("a", group), Place(Turn(0.0, number), group.name))
    line.pause("a")
    assert line.take() is None and line.places == 3
    line.resume("a")
    assert [place.item for _, place in (line.take(), line.take(), line.take())] == ["OWN", "NEW", "LATER"]  # type: ignore[misc]
