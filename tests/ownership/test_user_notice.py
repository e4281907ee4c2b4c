"""Of many nodes that have the same to tell, one or a few tell it, soon."""

from sidecar.ownership import user_notice


def turns(nodes: int, *, known: bool) -> list[float]:
    found = (user_notice.turn(f"node-{number}", "uid", nodes if known else None) for number in range(nodes))
    return sorted(item for item in found if item is not None)


def test_known_contenders_tell_soon_and_most_of_many_leave_it_to_others() -> None:
    for nodes in [1, 3, 30, 1000, 5000]:
        found = turns(nodes, known=True)
        assert user_notice.PATIENCE <= found[0] <= user_notice.PATIENCE + 40.0
        assert len(found) <= 40


def test_without_knowing_how_many_there_are_somebody_tells_within_minutes_and_few_in_the_first_moment() -> None:
    for nodes in [1, 3, 30, 1000, 5000]:
        found = turns(nodes, known=False)
        assert len(found) == nodes
        assert found[0] <= user_notice.PATIENCE + 100.0
        assert sum(item == user_notice.PATIENCE for item in found) <= 15


def test_the_lot_is_another_for_each_claim() -> None:
    assert len({min(range(30), key=lambda node: user_notice.turn(f"n{node}", f"uid-{claim}", None) or 1e9) for claim in range(40)}) > 10
