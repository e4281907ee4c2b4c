"""What hack/demo needs beyond the demo of the simulation."""
