"""A cluster with real kubelets in namespaces of this machine: what hack/cluster does, and what tests/cluster holds in its hands.

Here belong the machine's side of it (namespaces, mounts, networks, programs, what they would leave behind) and the settings the programs
need there. How the programs are built is hack/control-plane, what images hold is hack/images, what is installed on the cluster is deploy/.
The door is `kubelets.cluster.Cluster`.
"""
