"""May this node be drained, may it be retired, what blocks that and why; who has to wait; and keeping new volumes off meanwhile.

`snapshot` is what is known, `assess` the judgement, `report` its renderings, `signals` and `standing` what the node's own marks ask for,
`evacuation` the course of emptying it, `gate` what holds a drainer back. All of them are pure; `controller` is the one that acts, and
`gathering` the one that asks. Evicting pods and moving data are not here: they will be `eviction`'s and later work.
"""
