"""How it goes with the list and the watch of one kind, for whoever depends on what they bring."""

from sidecar.frozen import frozen


@frozen
class Listing:
    """The first list has not arrived."""

    why: str = "the first list has not arrived yet"


@frozen
class Synced:
    """The store is complete and follows the server."""

    why: str = ""


SYNCED = Synced()


@frozen
class Degraded:
    """It does not work now; the store is old, or still empty."""

    why: str


@frozen
class Denied:
    """Our role does not allow it. It is tried again, since the right may be granted later."""

    why: str


@frozen
class Off:
    """An optional resource that the server does not serve or our role does not allow: the feature is off, and asked for now and then."""

    why: str
    absent: bool = False
    """The server has no such resource, so no object of it exists."""


ReflectorState = Listing | Synced | Degraded | Denied | Off
