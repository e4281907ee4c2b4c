"""Decides whether this node may be drained or retired, says what blocks it, and holds drains back until nothing does.

Five rooms: facts, judgement, evacuation, gate, publish. README.md is the map. Evicting pods and moving data do not belong here: those who
drain a node evict, and data is not moved yet.
"""
