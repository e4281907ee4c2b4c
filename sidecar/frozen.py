"""Makes frozen classes with slots, as `@dataclass(frozen=True, slots=True)` does, in a tenth of the time.

A start makes more than two hundred of them, and dataclasses compile six functions for each: that was a third of what a start costs on
every node of the cluster. Of most a start makes no object. So only the class with its slots is made at once, and when the first object is,
dataclasses say what its fields are, and `__init__` is compiled. It fills the slots past `__setattr__`, which halves the time to make an
object.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from operator import attrgetter
from typing import Any, ClassVar, Final, Never, TypeVar, dataclass_transform, get_origin, overload

C = TypeVar("C")


@overload
@dataclass_transform(eq_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(class_: type[C], /) -> type[C]: ...
@overload
@dataclass_transform(eq_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[C]], type[C]]: ...
def frozen(class_: type[C] | None = None, /, *, kw_only: bool = False) -> type[C] | Callable[[type[C]], type[C]]:
    """What has an order, or is equal to itself only, stays with `@dataclass`."""
    return _made(class_, kw_only=kw_only) if class_ is not None else lambda class_: _made(class_, kw_only=kw_only)


# What dataclasses give a class for others to read.
_TOLD: Final = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
# What a class may say itself: it may have reasons to show less than all, or to be equal to more.
_OWN_WORDS: Final = ("__repr__", "__eq__", "__hash__")


def _made(class_: type[Any], *, kw_only: bool) -> Any:
    own = [name for name, type_ in get_annotations(class_).items() if not _is_of_the_class(type_)]
    inherited = {slot for base in class_.__mro__[1:] for slot in base.__dict__.get("__slots__", ())}
    left_out = {*own, "__dict__", "__weakref__"}
    content = {name: value for name, value in class_.__dict__.items() if name not in left_out}
    unfinished = _Unfinished(class_, kw_only=kw_only)
    content |= {
        "__qualname__": class_.__qualname__,
        "__slots__": tuple(name for name in own if name not in inherited),
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__setstate__": _restore,
        **unfinished.content(),
        **unfinished.own_words,
    }
    metaclass: Any = type(class_)
    unfinished.made = metaclass(class_.__name__, class_.__bases__, content)
    return unfinished.made


def _is_of_the_class(annotation: Any) -> bool:
    return annotation is ClassVar or get_origin(annotation) is ClassVar


class _Unfinished:
    """A class of which there is no object yet. What needs its fields finishes it first."""

    def __init__(self, class_: type[Any], *, kw_only: bool) -> None:
        """`class_` as it was written; `made` is what becomes of it."""
        self.made: Any = None
        self._class = class_
        self._kw_only = kw_only
        said = {name: class_.__dict__.get(name) for name in _OWN_WORDS}
        self.own_words = {name: word for name, word in said.items() if word is not None}  # who says what equals it has a hash of None

    def content(self) -> dict[str, Any]:
        """What stands in the class until then."""

        def __init__(made: Any, *args: Any, **by_name: Any) -> None:  # noqa: N807
            self.finish().__init__(made, *args, **by_name)

        def __eq__(made: Any, other: object) -> Any:  # noqa: N807
            return self.finish().__eq__(made, other)

        def __hash__(made: Any) -> int:  # noqa: N807
            return int(self.finish().__hash__(made))

        return {"__init__": __init__, "__eq__": __eq__, "__hash__": __hash__} | {name: _Told(self, name) for name in _TOLD}

    def finish(self) -> Any:
        made, written = self.made, self._class
        written.__doc__ = written.__doc__ or written.__name__  # or else dataclasses would write out its signature for that
        as_written = dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)(written)
        for name in _TOLD:
            setattr(made, name, getattr(as_written, name))
        made.__init__ = _init(made)
        equal, hashed = _comparison([each.name for each in fields(made) if each.compare])
        made.__eq__, made.__hash__ = self.own_words.get("__eq__", equal), self.own_words.get("__hash__", hashed)
        return made


class _Told:
    """One of the attributes by which dataclasses are known."""

    def __init__(self, unfinished: _Unfinished, name: str) -> None:
        self._unfinished = unfinished
        self._name = name

    def __get__(self, made: object, class_: type[Any]) -> Any:
        return getattr(self._unfinished.finish(), self._name)


def _init(class_: type[Any]) -> Callable[..., None]:
    """Its source names a field's default `__default_x`, its factory `__make_x` and what fills its slot `__set_x`, as no field is called."""
    known: dict[str, Any] = {"MISSING": MISSING}
    by_position, by_name, body = ["self"], ["*"], []
    for each in fields(class_):
        name = each.name
        known |= {f"__default_{name}": each.default, f"__make_{name}": each.default_factory}
        known[f"__set_{name}"] = getattr(class_, name).__set__
        if each.init:
            (by_name if each.kw_only else by_position).append(_parameter(each))
        if each.init or each.default_factory is not MISSING:  # or else it is left to __post_init__
            body.append(f"__set_{name}(self, {_content(each)})")
    if hasattr(class_, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(by_position + (by_name if len(by_name) > 1 else []))
    exec(f"def __init__({parameters}): {'; '.join(body) or 'pass'}", known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{class_.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in fields(class_) if each.init} | {"return": None}
    return init


def _parameter(each: "Field[Any]") -> str:
    if each.default is not MISSING:
        return f"{each.name}=__default_{each.name}"
    return each.name if each.default_factory is MISSING else f"{each.name}=MISSING"


def _content(each: "Field[Any]") -> str:
    made = f"__make_{each.name}()"
    if each.default_factory is MISSING:
        return each.name
    return f"{made} if {each.name} is MISSING else {each.name}" if each.init else made


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparison(names: list[str]) -> tuple[Callable[[Any, Any], bool], Callable[[Any], int]]:
    """`__eq__` and `__hash__` of these fields together."""
    content = _getter(names)

    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807
        return content(self) == content(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(content(self))

    return __eq__, __hash__


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _refuse(self: Any, name: str, *_: object) -> Never:
    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


def _restore(self: Any, state: tuple[None, dict[str, Any]]) -> None:
    """For what copies and pickles objects, which would assign to the slots."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
