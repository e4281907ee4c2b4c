"""What the API server does for each volume in a cluster of n nodes, reckoned: who hears of it, and what is dropped for the others.

Constants are of `hack/bench scale`; tests/simulation/swarm/test_server_cost.py holds the sums to what was measured. It is reckoned for a
server that keeps up: where nodes take one another for late, or are refused, they ask more often.
"""

from typing import Final

from sidecar.frozen import frozen
from sidecar.ownership.shards import LISTENERS, is_shared_out

ALL: Final = "all"
LABELLED: Final = "labelled"
SCOPES: Final = (ALL, LABELLED)
"""Values of --watch-scope."""
SIZES: Final = (30, 100, 300, 1000, 5000)

# Changes of a claim. Immediate: made, annotated by the volume controller, its node selected, bound, its status. Late, as measured: its node
# is there from the beginning. Of a volume: made for its claim, its status.
_OF_IMMEDIATE: Final = 5
_OF_LATE: Final = 4
_OF_VOLUME: Final = 2
_WITH_OWNER: Final = 2
"""Changes of an Immediate claim after its node has been selected."""
_VOLUME_WATCHES: Final = 2
"""Of each node: those with its label, and those without one."""
_CLAIM_WATCHES: Final = {ALL: 1, LABELLED: 2}
_OTHERS_OF_CLAIMS: Final = 2
"""The volume controller, and whoever waits for the claim."""
_OTHERS_OF_VOLUMES: Final = 1

_KB_CLAIM: Final = 1.27
_KB_VOLUME: Final = 2.1
"""Of an event: JSON to nodes, protobuf to controllers, and as large."""

_REQUESTS: Final = {True: 4.2, False: 3.0}
"""By whether claims bind immediately: of all nodes together, without watches. One stores it, two tell of it, one takes the claim."""

_MS_ANYWAY: Final = 8.0
"""CPU that a volume costs the API server whoever makes it: what users and controllers ask for."""
MS_REQUEST: Final = 2.5
_MS_SENT: Final = 0.030
_MS_FILTERED: Final = 0.0045
_MS_POLICY: Final = 0.4
"""For each change of a claim."""


@frozen(kw_only=True)
class ServerCost:
    """For each volume."""

    events: float
    """That are sent to watches."""
    filtered: float
    """That watches are offered, and that their selectors drop."""
    kilobytes: float
    """Of the events that are sent."""
    requests: float
    """Of the nodes, without watches."""
    milliseconds: float
    """Of the server's CPU, on the machine of the measurements."""


def server_cost(nodes: int, *, scope: str, immediate: bool, ranked: bool = True, requests: float | None = None) -> ServerCost:
    """`requests`: what the nodes ask for where that is known better, as of a server that does not keep up."""
    changes = _OF_IMMEDIATE if immediate else _OF_LATE
    heard = nodes * changes if scope == ALL else _heard_by_label(nodes, changes, immediate=immediate, ranked=ranked)
    claims, volumes = heard + changes * _OTHERS_OF_CLAIMS, _OF_VOLUME * (1 + _OTHERS_OF_VOLUMES)
    filtered = nodes * (changes * _CLAIM_WATCHES[scope] + _OF_VOLUME * _VOLUME_WATCHES) - heard - _OF_VOLUME
    asked = _REQUESTS[immediate] if requests is None else requests
    policy = changes * _MS_POLICY if scope == LABELLED else 0.0
    return ServerCost(
        events=claims + volumes,
        filtered=filtered,
        kilobytes=claims * _KB_CLAIM + volumes * _KB_VOLUME,
        requests=asked,
        milliseconds=_MS_ANYWAY + asked * MS_REQUEST + (claims + volumes) * _MS_SENT + filtered * _MS_FILTERED + policy,
    )


def _heard_by_label(nodes: int, changes: int, *, immediate: bool, ranked: bool) -> int:
    """A late claim is heard by its node alone. An open one comes to all who listen to its shard, and leaves all but one of them."""
    if not immediate:
        return changes
    listeners = LISTENERS if ranked and is_shared_out(nodes) else nodes
    return listeners + (listeners - 1) + 1 + _WITH_OWNER
