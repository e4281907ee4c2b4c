# syntax=docker/dockerfile:1
# Both bases need the same Python, 3.11 or newer, and glibc; wheels exist for amd64 and arm64. Only the second is part of the image, and
# it needs neither a shell nor pip.
ARG BASE=python:3.13-slim
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ENV PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY hack/constraints.txt pyproject.toml README.md ./
COPY csi_proto ./csi_proto
# Without sidecar/simulation, which .dockerignore leaves out: it serves the demo and the tests, and no node needs it.
COPY sidecar ./sidecar
# Bytecode is compiled here: a read-only root file system cannot keep it, and compiling at every start costs half a second.
# It is trusted unseen, since whoever packs or copies an image may change the times of files. The Kubernetes client's generated classes,
# more than four fifths of all source, are never loaded.
RUN python -m venv /opt/csi-node-sidecar \
 && /opt/csi-node-sidecar/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt . \
 && /opt/csi-node-sidecar/bin/pip uninstall --yes setuptools pip \
 && python -m compileall -q -j 0 -o 2 --invalidation-mode unchecked-hash -x '/kubernetes/(aio/)?client/(api|models)/[^_]' /opt/csi-node-sidecar

FROM ${BASE}
COPY --from=build /opt/csi-node-sidecar /opt/csi-node-sidecar
# No child process is ever started after gRPC runs, so its fork handlers would only cost.
# Docstrings are for readers of the source: without them an instance takes 3 MiB less on every node.
# The threshold is glibc's own, which it would raise as soon as a page of a list was freed: then pages leave holes in memory for good.
ENV PYTHONOPTIMIZE=2 GRPC_ENABLE_FORK_SUPPORT=0 GRPC_VERBOSITY=NONE PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_MMAP_THRESHOLD_=131072
# The base's own modules as well, as far as we load them: bases come without this bytecode.
RUN ["/opt/csi-node-sidecar/bin/python", "-c", "\
import compileall, py_compile, sysconfig, re; \
compileall.compile_dir(sysconfig.get_path('stdlib'), quiet=1, workers=0, optimize=2, \
rx=re.compile('/(site-packages|dist-packages|test|tests|idlelib|lib2to3|ensurepip)/'), \
invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"]
# The path of the program in upstream's image: a container that names it as its command needs no other change than the image either.
RUN ["/opt/csi-node-sidecar/bin/python", "-c", "import os; os.symlink('/opt/csi-node-sidecar/bin/csi-node-sidecar', '/csi-provisioner')"]
# No USER: like upstream's image, so that an unchanged DaemonSet reaches a root-owned socket. Any uid that may reach it will do.
ENTRYPOINT ["/opt/csi-node-sidecar/bin/csi-node-sidecar"]
