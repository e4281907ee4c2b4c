from hack.sim.world.requests import CREATIONS, DELETIONS, MEASURES, MOST, WRITES, most_in_a_minute

__all__ = ["CREATIONS", "DELETIONS", "MEASURES", "MOST", "WRITES", "most_in_a_minute"]
