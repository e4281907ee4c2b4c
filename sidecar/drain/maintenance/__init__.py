"""Maintenance that is declared: which nodes, for what and how far; each node's own sidecar carries it out, and puts the node back."""
