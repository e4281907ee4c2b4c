"""The demo: the real program as three processes, each beside a served driver, on a simulated or a real control plane.

__main__         the command: `python -m hack.sim.demo`, or hack/demo
acts             what is shown, one function for each act; an act ends when its result was seen
stage            the control plane, the three nodes, and what the acts do with them
watcher          prints what happens in the cluster, and keeps each claim's history
report           the table at the end, and the check for leaked and doubled volumes
processes        child processes that do not outlive the demo
control_plane    the simulated API server with binder, scheduler and kubelets
"""
