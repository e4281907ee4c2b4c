"""`hack/bench capacity`: how old the published capacity is while claims come and go."""
