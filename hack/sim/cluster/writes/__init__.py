"""Writes with rules of their own: deletion, eviction, garbage collection, patches. Create and replace are in `cluster`."""
