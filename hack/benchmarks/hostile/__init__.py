"""`hack/bench hostile`: what tenants, drivers and clients can do to one instance, each attack as a run with figures."""
