"""What happens in worlds whose nodes watch claims by label and in no others, by name. `plan_labels` and `plan_roster` draw it."""

from typing import Final

BY_LABEL: Final = ("--watch-scope=labelled",)
"""The flags of a node."""

IN_FORCE: Final = "policy in force"
GONE: Final = "policy gone"
UNBOUND: Final = "policy unbound"
EDITED: Final = "policy edited"
RELABELLED: Final = "claim relabelled"
SCOPE: Final = "scope"
JOINS: Final = "node joins"
LEAVES: Final = "node leaves"
RENAMED: Final = "node renamed"
UNREGISTERED: Final = "driver unregistered"
REGISTERED: Final = "driver registered"
ROLLED: Final = "rolled"

POLICY: Final = (IN_FORCE, GONE, UNBOUND, EDITED)
"""What may befall it."""

STAYS_LISTED: Final = "stays listed"
UPSTREAM, ALL, LABELLED = "upstream", "all", "labelled"
"""What a node runs: upstream, or ours with that scope."""
