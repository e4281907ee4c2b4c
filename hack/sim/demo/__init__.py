"""The demo: the real program as three processes, each beside a served driver, on the simulated or a real control plane.

__main__    the command: `python -m hack.sim.demo`, or hack/demo
acts        what is shown, one function for each act; an act ends when its result was seen
stage       the control plane, the three nodes, what the acts do with them, and what is seen and told of it
"""
