from hack.sim.world.requests import RequestLog

__all__ = ["RequestLog"]
