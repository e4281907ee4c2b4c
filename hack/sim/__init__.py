"""The world around the sidecar, for the demo and the tests: an API server, CSI drivers, a control plane, and networks that fail.

Nothing in here runs on a node. Nobody's data may live in it, and production code never imports it. What is simulated behaves like the
real thing or refuses: space is finite, a volume has one topology, answers can be lost.

From the bottom up (pyproject.toml guards the order):

    clock       virtual time: an event loop whose clock jumps to the next timer
    cluster     the API server, in the process or behind HTTP
    driver      a CSI driver with finite space, in the process or behind a socket
    stand_ins   the other programs of a control plane: binder, scheduler, kubelets, ...
    world       nodes with the real rooms, a plan of what goes wrong, and the invariants that must hold afterwards
    drains      worlds whose nodes are drained, with drainers, owners, and a referee of what is lost
    notebook    a world led by hand, command by command; its transcripts are tests (tests/scenarios)
    demo        hack/demo: the real program as three processes, beside served drivers
"""
