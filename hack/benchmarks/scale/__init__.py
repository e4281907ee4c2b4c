"""`hack/bench scale`: the same race with a hundred nodes, and one central program beside it."""
