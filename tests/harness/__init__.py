"""What the tests of several rooms share. What one room's tests alone use lies beside them.

No test module imports another one: what two of them need is moved here.

    samples, doors    objects as the API server has them, and scripted doors to the server and to the driver
    sidecar           the wired sidecar on scripted doors
    provisioning/     the provisioning room between scripted doors, with journals, sources and secrets
    drain/            the drain room on a simulated API server, node snapshots, and judgements
    driver/           the simulated driver, in this process and as a program
    cluster_tools     a simulated API server, empty
    planted           what somebody may have put where a file of ours goes
    mounting          mounts, in a namespace of their own or faked
"""
