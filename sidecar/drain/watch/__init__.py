"""What one elected sidecar looks after for all nodes of its driver: sidecars that are silent, and nodes that are gone."""
