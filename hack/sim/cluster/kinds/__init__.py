"""The kinds that the simulated API server knows: their fields, defaults and rules. One row each in `table`."""
