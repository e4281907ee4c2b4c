"""A real control plane for the smoke tests of one process: each promise of the README, shown once, on servers of Kubernetes.

A test here has namespaces and drivers of its own, deletes its nodes (n1, ...) at its end, restarts nothing that others use, draws no
number at random, and takes less than half a minute. etcd, kube-apiserver, controllers, scheduler and kwok are all that it needs.
"""

from __future__ import annotations

from tests.harness.cluster import bin_dir, cluster, plane, pytest_runtest_makereport, role
from tests.harness.drains import drainer, ground

__all__ = ["bin_dir", "cluster", "drainer", "ground", "plane", "pytest_runtest_makereport", "role"]
