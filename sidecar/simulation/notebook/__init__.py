"""Lab notebooks: a world is led by hand, command by command, and what it did is written below each.

    # Two or three lines on what the reader should see.

    world nodes=2 seed=1 pool=10Gi
    class late
    ----
       0.005  n0         capacity of late on n0: 10Gi published

Commands stand up to `----`, below it the transcript up to an empty line. A notebook is a test, which compares, and is
rewritten with `python -m sidecar.simulation.notebook --rewrite FILE …`; the difference is then read by a person. What the
commands are is told by `commands`, what the lines mean by `diary`.
"""

from sidecar.simulation.notebook.play import played

__all__ = ["played"]
