"""How it goes with the list and the watch of one kind, for whoever depends on what they bring."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listing:
    """The first list has not arrived."""

    why: str = "the first list has not arrived yet"


@dataclass(frozen=True, slots=True)
class Synced:
    """The store is complete and follows the server."""

    why: str = ""


SYNCED = Synced()


@dataclass(frozen=True, slots=True)
class Degraded:
    """It does not work now; the store is old, or still empty."""

    why: str


@dataclass(frozen=True, slots=True)
class Denied:
    """Our role does not allow it. It is tried again, since the right may be granted later."""

    why: str


@dataclass(frozen=True, slots=True)
class Off:
    """An optional resource that the server does not serve or our role does not allow: the feature is off, and asked for now and then."""

    why: str
    absent: bool = False
    """The server has no such resource, so no object of it exists."""


ReflectorState = Listing | Synced | Degraded | Denied | Off
