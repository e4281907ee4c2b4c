"""One world: nodes with the real rooms on a simulated API server, the rest of a cluster, and trouble that is drawn from a seed.

    world            begins a world, plays its plan, lets it come to rest and has it judged
    themes           what worlds are about, what may go wrong in each, and the plan of a seed; what all share is in `plan`
    actions, people  what happens: the table of all events, and who drains nodes and owns what is on them
    node, doors      one node: its driver, its sidecar's lives, and the network between them and the API server
    network          how late and how reliable requests are, and when a process dies
    moments, verdicts, effects, records
                     the referee while the world runs: owners, volumes and replicas; what is said of nodes; what is evicted, deleted and
                     touched; how often nodes ask
    maintenance, maintained; failover, machines, failed_over
                     declared maintenances and fail-over: what happens in their worlds, and the referee's sentences about it
    guards           who makes the pods of gates
    rest             the referee at the end: nothing leaked, doubled, lost or left
    strangers        objects of others, which the sidecars must leave alone
    story            a world that a test leads step by step

`hack/fire` plays many seeds; tests/world plays some of them. The words, and those of the trade:

    stand-in      fake controller               referee, sentence   checker, invariant         theme       scenario
    door          client of one protocol        finding             violation                  trouble     kind of fault
    life          one run of the process        truth               what the drivers hold      weather     latency and loss
    doomed        killed at its n-th effect     said, word, note    annotation                 made anew   recreated elsewhere
    stranger      object of another driver      mark                annotation of a sidecar    given up    whose loss its owner allows
"""
