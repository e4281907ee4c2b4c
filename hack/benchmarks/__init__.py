"""What hack/bench measures: one file for each of its commands, beside what they share."""
