"""`hack/bench race`: how fast Immediate claims find their nodes, and what the API server pays for it."""
