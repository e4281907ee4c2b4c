"""How a claim of this node becomes a volume, and how a released volume goes away. Which node takes a claim is ownership's."""
