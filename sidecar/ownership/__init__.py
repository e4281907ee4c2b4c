"""Decides which node takes an Immediate claim: the race between the nodes, and the guarded write that ends it. What a node does with a
claim that it has taken belongs in `provisioning`."""
