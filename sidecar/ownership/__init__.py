"""Who takes an Immediate claim. Here belong the race between nodes and the guarded write that ends it; what is done with
the claim afterwards does not."""
