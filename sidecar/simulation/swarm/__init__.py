"""The swarm: thousands of nodes compete for Immediate claims on virtual time, with the real rooms or with a thin model of them."""
