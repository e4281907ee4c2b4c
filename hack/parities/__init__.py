"""Whether both programs do the same: one load of claims, once for each, and every field of what came of it side by side."""
