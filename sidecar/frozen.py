"""Makes frozen classes with slots, as `@dataclass(frozen=True, slots=True)` does, in a fifth of the time.

A start makes more than two hundred of them, and dataclasses compile six functions for each: that was a third of what a start costs on
every node of the cluster. Here only `__init__` is compiled, and only when the first object is made: of most classes a start makes none. It
fills the slots past `__setattr__`, which halves the time to make an object.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Never, TypeVar, dataclass_transform, overload

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


def _made(class_: type[Any], *, kw_only: bool) -> Any:
    class_.__doc__ = class_.__doc__ or class_.__name__  # or else dataclasses would write out its signature for that
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(class_)
    made.__init__ = _compiled_at_first_use(made)
    made.__repr__ = _repr
    made.__eq__, made.__hash__ = _comparison([each.name for each in fields(made) if each.compare])
    made.__setattr__ = made.__delattr__ = _refuse
    made.__setstate__ = _restore
    return made


def _compiled_at_first_use(class_: Any) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **by_name: Any) -> None:  # noqa: N807
        class_.__init__ = init = _init(class_)
        init(self, *args, **by_name)

    return __init__


def _init(class_: type[Any]) -> Callable[..., None]:
    """Its source names a field's default `default_x`, its factory `make_x` and what fills its slot `set_x`."""
    known: dict[str, Any] = {"MISSING": MISSING}
    by_position, by_name, body = ["self"], ["*"], []
    for each in fields(class_):
        name = each.name
        known |= {f"default_{name}": each.default, f"make_{name}": each.default_factory, f"set_{name}": getattr(class_, name).__set__}
        if each.init:
            (by_name if each.kw_only else by_position).append(_parameter(each))
        if each.init or each.default_factory is not MISSING:  # or else it is left to __post_init__
            body.append(f"set_{name}(self, {_content(each)})")
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
        return f"{each.name}=default_{each.name}"
    return each.name if each.default_factory is MISSING else f"{each.name}=MISSING"


def _content(each: "Field[Any]") -> str:
    made = f"make_{each.name}()"
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
