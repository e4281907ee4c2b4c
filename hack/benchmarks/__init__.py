"""What hack/bench measures: a file or a folder for each of its commands, beside what they share (stage, pod, process_cost)."""
