"""What the tests of several rooms share. What one room's tests alone use lies beside them.

What two folders need is moved here. The first of it to open, for tests in Python and for those on real servers:

    samples, doors    objects as the API server has them, and scripted doors to the server and to the driver
    sidecar           the wired sidecar on scripted doors
    provisioning/     the provisioning room between scripted doors, with journals, sources and secrets
    drain/            the drain room on a simulated API server, node snapshots, and judgements
    driver/           the simulated driver, in this process and as a program
    cluster_tools     a simulated API server, empty
    cluster, drains   a namespace on a real control plane; the same with drain decisions
    kill_loop         processes that are killed under load, and the balance of volumes after it
    coroutines, loops waits and loops of tests that are coroutines
    planted           what somebody may have put where a file of ours goes
    mounting          mounts, in a namespace of their own or faked
"""
