"""What hack/bench measures: a file for each of its commands, beside what they share (stage, pod)."""
