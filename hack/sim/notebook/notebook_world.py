from hack.sim.world.story import Story as NotebookWorld

__all__ = ["NotebookWorld"]
