"""The world around the sidecar, for the demo and the tests: an API server, CSI drivers, a control plane, and networks that fail.

Nothing in here runs on a node. Nobody's data may live in it, and production code never imports it. What is simulated behaves like the
real thing or refuses: space is finite, a volume has one topology, answers can be lost.

From the bottom up:

    clock       virtual time: an event loop whose clock jumps to the next timer
    cluster     the API server, in the process or behind HTTP
    driver      a CSI driver with finite space, in the process or behind a socket
    stand_ins   the other programs of a control plane: binder, scheduler, stateful sets, ...
    world       nodes with the real rooms, a plan of what goes wrong, and the referee of what must hold; or led by a test, step by step
    demo        hack/demo: the real program as three processes, beside served drivers
    mutations   hack/fire --mutate: guards of the program that are left out in a copy
"""
