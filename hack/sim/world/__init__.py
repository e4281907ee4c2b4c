"""Worlds: nodes with the real rooms, on a simulated API server, with trouble that is drawn from a seed.

    world            begins a world, plays its plan, lets it come to rest and judges it
    plan             what happens when, drawn from the seed; `plan_actions` does it
    plan_rolls       which placement and which program nodes run, and when one takes over from the other
    node, doors      one node: its driver, its sidecar's lives, and the network between them and the API server
    life, network    when a process dies; how late and how reliable requests are
    invariants       what must hold at the end; `referee` watches what must never happen in between
    wanderings       how often nodes may take a claim; `measurements`: how often they may ask for free space
    upstream         a model of external-provisioner; `upstream_excuses`: what it does wrong by itself
    bounds           how much a process keeps; `claim_rates` and `driver_deaths`: how often it asks
    foreign_objects  objects of others, which the sidecars must leave alone
    request_log      how often nodes asked while asking was useless
    transcript       what happened, as lines of text

`hack/fire` plays many seeds; tests/world plays some of them.
"""
