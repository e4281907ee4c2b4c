from hack.sim.world.story import do

__all__ = ["do"]
