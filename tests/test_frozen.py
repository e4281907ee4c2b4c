"""What `@frozen` makes is what dataclasses make; only sooner."""

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from sidecar.frozen import frozen

T = TypeVar("T")
Make = Callable[..., Any]


def both(class_: Callable[[], type], **options: bool) -> tuple[type[Any], type[Any]]:
    """The class as each of the two makes it."""
    return frozen(**options)(class_()), dataclass(frozen=True, slots=True, **options)(class_())  # type: ignore[call-overload]


def nothing() -> type:
    class Nothing:
        """Has no field."""

    return Nothing


def one() -> type:
    class One:
        it: object

    return One


def many() -> type:
    class Many:
        name: str
        kind: ClassVar[str] = "kind"
        size: int = 3
        secret: str = field(default="", repr=False)
        seen: float = field(default=0.0, compare=False)
        more: tuple[str, ...] = field(default_factory=tuple)

        @property
        def twice(self) -> int:
            return 2 * self.size

    return Many


def completed() -> type:
    class Completed:
        names: tuple[str, ...]
        first: str = field(init=False, repr=False, compare=False)
        kept: list[str] = field(init=False, default_factory=list, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "first", self.names[0])
            self.kept.append("kept")

    return Completed


def generic() -> type:
    class Of(Generic[T]):
        it: T
        more: int = field(default=1, kw_only=True)

    return Of


def with_its_own_words() -> type:
    class Secret:
        """A class may have reasons to show less of itself, or to be equal to more."""

        word: str
        name: str = ""

        def __repr__(self) -> str:
            return "Secret()"

        def __eq__(self, other: object) -> bool:
            return type(other).__name__ == "Secret"

        def __hash__(self) -> int:
            return 7

    return Secret


def equal_in_its_own_way() -> type:
    class Folded:  # noqa: PLW1641 - it is given one
        word: str

        def __eq__(self, other: object) -> bool:
            return str(self.word).lower() == str(getattr(other, "word", "")).lower()

    return Folded


CASES = [
    pytest.param(nothing, {}, [((), {})], id="no field"),
    pytest.param(one, {}, [((1,), {}), ((), {"it": "x"}), ((math.nan,), {}), (((1, 2),), {})], id="one field"),
    pytest.param(many, {}, [(("a",), {}), (("a", 4, "s", 1.0, ("m",)), {}), ((), {"name": "b", "seen": 2.0})], id="many fields"),
    pytest.param(many, {"kw_only": True}, [((), {"name": "a"}), ((), {"name": "a", "size": 4, "more": ("m",)})], id="by name only"),
    pytest.param(completed, {}, [((("a", "b"),), {})], id="completed after it is made"),
    pytest.param(generic, {}, [((1,), {}), ((1,), {"more": 2})], id="generic"),
    pytest.param(with_its_own_words, {}, [(("a",), {}), (("b", "n"), {})], id="with methods of its own"),
    pytest.param(equal_in_its_own_way, {}, [(("a",), {}), (("A",), {}), (("b",), {})], id="equal in its own way"),
]


@pytest.mark.parametrize(("class_", "options", "calls"), CASES)
def test_it_is_made_and_shown_and_compared_as_dataclasses_do(
    class_: Callable[[], type], options: dict[str, bool], calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    ours, theirs = both(class_, **options)
    assert ours.__match_args__ == theirs.__match_args__ and ours.__slots__ == theirs.__slots__
    assert is_dataclass(ours) and [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    mine, others = ([make(*args, **more) for args, more in calls] for make in (ours, theirs))
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
    assert [*map(repr, mine)] == [*map(repr, others)]
    assert [*map(hash, mine)] == [*map(hash, others)]
    assert [[one == other for one in mine] for other in mine] == [[one == other for one in others] for other in others]
    for one, other in zip(mine, others, strict=True):
        assert [getattr(one, each.name) for each in fields(one)] == [getattr(other, each.name) for each in fields(other)]


@pytest.mark.parametrize("call", [((), {}), ((1, 2), {}), ((), {"that": 1}), ((1,), {"it": 1})], ids=str)
def test_a_wrong_call_is_a_type_error(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    for make in both(one):
        with pytest.raises(TypeError, match="__init__"):
            make(*call[0], **call[1])


def test_nothing_of_it_can_be_changed() -> None:
    value = both(many)[0]("a")
    for change in (lambda: setattr(value, "size", 4), lambda: setattr(value, "other", 4), lambda: delattr(value, "size")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert value.size == 3 and value.twice == 6 and not hasattr(value, "__dict__")


def test_what_takes_dataclasses_takes_these() -> None:
    value = both(many)[0]("a", secret="s")
    assert replace(value, size=5) == type(value)("a", 5, "s")
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert value in {type(value)("a", secret="s", seen=9.0)}


def test_one_class_is_made_from_another() -> None:
    def derived(make: Any) -> type[Any]:
        @make
        class Base:
            it: int
            more: int = 2

        @make
        class Derived(Base):
            more: int = 3
            last: str = "l"

        return Derived

    ours, theirs = derived(frozen), derived(dataclass(frozen=True, slots=True))
    made = ours(1, last="z")
    assert repr(made) == repr(theirs(1, last="z")) and made == ours(1, 3, "z") != ours(1, 2, "z")
    assert ours.__slots__ == theirs.__slots__ == ("last",)
    match made:
        case ours.__base__(it, more):
            assert (it, more) == (1, 3)
        case _:
            raise AssertionError(made)
