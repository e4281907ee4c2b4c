# syntax=docker/dockerfile:1
# The base needs Python 3.11 or newer and glibc; wheels exist for amd64 and arm64.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY hack/constraints.txt pyproject.toml README.md ./
COPY csi_proto ./csi_proto
COPY sidecar ./sidecar
# Bytecode is compiled here: a read-only root file system cannot keep it, and compiling at every start costs half a second.
RUN python -m venv /opt/csi-node-sidecar \
 && /opt/csi-node-sidecar/bin/pip install --no-cache-dir --constraint constraints.txt . \
 && /opt/csi-node-sidecar/bin/pip uninstall --yes pip \
 && python -m compileall -q -j 0 -o 2 /opt/csi-node-sidecar

FROM ${BASE}
COPY --from=build /opt/csi-node-sidecar /opt/csi-node-sidecar
# No child process is ever started after gRPC runs, so its fork handlers would only cost.
# Docstrings are for readers of the source: without them an instance takes 3 MiB less on every node.
ENV PYTHONOPTIMIZE=2 GRPC_ENABLE_FORK_SUPPORT=0 GRPC_VERBOSITY=NONE PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# No USER: like upstream's image, so that an unchanged DaemonSet reaches a root-owned socket. Any uid that may reach it will do.
ENTRYPOINT ["/opt/csi-node-sidecar/bin/csi-node-sidecar"]
