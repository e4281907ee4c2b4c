"""`hack/bench memory`: how much memory an instance takes on an empty and on a full cluster."""
