"""Kubernetes Events: which are one and the same (`correlator`), and how they are written without holding up the work (`recorder`)."""
