"""Drain worlds: nodes whose sidecars judge, workloads that come back, drainers that end by switching a node off, and a referee.

    drain_world   begins a world, plays its plan, has everything settled, and judges it
    plan          what happens when, drawn from the seed; `actions` does it, `people` settle what is left at the end
    workloads     who makes the gate's pods again
    drainer       cordons, evicts, waits, and then switches the node off or reboots it
    truth         what would be lost with a node, from what the drivers really have; nothing of the product is asked
    eyes          when each sidecar ran and reached the API server: what it could have seen
    referee       holds every verdict, every guard that is let go and every end of a drain against the truth
    evictions     holds what a sidecar evicts against who may go, and who asks for it

and worlds whose nodes are emptied, several at once, with sets of several replicas:

    emptying_world, emptying_plan, emptying_actions   the same for these
    reprovision_world                                 the same with replicas that are made anew elsewhere
    replicas      holds evictions against the other replicas: never two are away by our doing
    claim_referee records each claim that a sidecar deletes, and `claim_deletions` says what was wrong with it; `sender`: who sent it

and worlds whose nodes are lost, announced or not, some with their disks back under the same name:

    node_loss_world, node_loss_plan   the same for these
    node_loss_referee                 holds what a peer touches against who has the bytes, whether that is there, and who gave it up
    node_loss_rest                    what must be the case at rest: all that may go is gone, and no mark or Lease is without its reason

Two promises are judged. *Never True while data would be lost*, at every moment. *Never False or Unknown for ever*: when all that is
on a node has been given up by those who may, both verdicts are True within bounded time, and no drain waits any more.

`hack/fire --worlds drains` and `--worlds emptying` play many seeds; tests/world/test_drain_worlds.py and test_emptying_replicas.py some.
"""
