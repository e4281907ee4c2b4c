"""`simulate race`: thousands of nodes compete for Immediate claims in virtual time.

    race, options    the command, and its command line
    scenario         cluster, load, trouble and network of a race as one value, drawn from a seed
    full             the real rooms on every node (`full_doors`: their requests and calls, delayed and counted)
    thin             a fast model for large clusters, which asks the same `ownership` rules
    counts           what both models count, and the summary; `table` and `drawing` show it
    server_cost, upkeep_cost   what the API server does for a volume, at rest and per roll: reckoned, not played; `cost_table` shows it
    lines, lists, turns   parts of the thin model: delays of watches, lists of contenders, the order of bids

tests/simulation/swarm holds the two models against each other.
"""
