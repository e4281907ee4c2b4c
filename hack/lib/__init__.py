"""What several commands of hack share, and the tests use as well. Nothing below hack imports the tests.

control_plane      a real control plane in a folder: etcd, kube-apiserver, controllers, scheduler, kwok
processes          programs as processes, and free ports for them
programs           programs beside it: the sidecar, its peer, CSI drivers
command            how commands begin, with the Python that has their packages, and end; progress on stderr, errors for people
cache              where things are kept
debian             packages of Debian, unpacked and not installed
links, effects_contract    checks of lint: links in Markdown files, effects in files of their own
"""
