"""Drain decisions: may this node be drained or retired, what blocks that, and what this sidecar does to empty it (README.md)."""
