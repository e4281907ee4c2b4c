"""Lab notebooks: a world is led by hand, command by command, and the file holds below each command what the world did.

    # Two or three lines on what the reader should see.

    world nodes=2 seed=1 pool=10Gi
    class late
    ----
       0.005  n0         capacity of late on n0: 10Gi published

Commands stand up to `----`, below it the transcript up to an empty line. A notebook is a test: the transcript is
compared. `python -m hack.sim.notebook --rewrite FILE …` writes it anew, and a person reads the difference. The
commands are in `commands`, and what the lines of a transcript mean is in `log`.
"""

from hack.sim.notebook.play import played

__all__ = ["played"]
