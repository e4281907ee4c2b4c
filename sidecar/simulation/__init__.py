"""simulation: the world around the sidecar, for the demo and the tests. Nothing in here runs on a node, and nobody's data may live in it.

Production code never imports this room. What is simulated is honest or refuses: finite space, one topology, answers that can be lost.
"""
