# Both bases need the same Python, 3.11 to 3.13, and glibc 2.28 or newer, on amd64 or arm64: of these hack/constraints-image.txt knows the
# wheels. Only the second is part of the image, and it needs neither a shell nor pip. The default is a tag, which may be another image
# tomorrow: good for a build at home. hack/release hands in the base by its digest.
ARG BASE=python:3.13-slim
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ENV PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY hack/constraints-build.txt hack/constraints-image.txt ./
# Wheels of known content only, and nothing that is not listed. No source is built but ours, and its backend comes from such wheels as well:
# what pip fetches by itself for a build, it holds to hashes only in its latest versions.
# Of what our wheel requires, that which asks plug-ins of kubeconfigs is left out (pyproject.toml, not-in-the-image): three quarters of the
# image would be for what it has none of. So pip can check the rest only before our wheel is there.
# PyYAML reads without its compiled part too, which is three quarters of it: nobody waits for a kubeconfig of some lines.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --no-deps --requirement constraints-build.txt \
 && python -m venv /opt/csi-node-sidecar \
 && /opt/csi-node-sidecar/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary :all: --no-deps \
    --requirement constraints-image.txt \
 && /opt/csi-node-sidecar/bin/python -c "import pathlib, yaml; [file.unlink() for file in pathlib.Path(yaml.__file__).parent.glob('_yaml*.so')]" \
 && /opt/csi-node-sidecar/bin/pip check
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY csi_proto ./csi_proto
COPY sidecar ./sidecar
# Bytecode is compiled here: a read-only root file system cannot keep it, and compiling at every start costs half a second.
# It is trusted unseen, since whoever packs or copies an image may change the times of files.
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --check-build-dependencies --wheel-dir /opt/build/wheel . \
 && /opt/csi-node-sidecar/bin/pip install --no-index --no-deps --no-compile /opt/build/wheel/*.whl \
 && /opt/csi-node-sidecar/bin/pip uninstall --yes setuptools pip \
 && python -m compileall -q -j 0 -o 2 --invalidation-mode unchecked-hash /opt/csi-node-sidecar

# The reader of replicated storage, `--target read-drbd`: a container of its own, since drbdsetup wants rights that a sidecar must not have.
# So it has the standard library, our wheel and the distribution's drbd-utils, and nothing else.
FROM build AS build-read-drbd
RUN python -m venv --without-pip /opt/read-drbd \
 && /opt/build/bin/pip --python /opt/read-drbd/bin/python install --no-index --no-deps --no-compile /opt/build/wheel/*.whl \
 && python -m compileall -q -j 0 -o 2 --invalidation-mode unchecked-hash /opt/read-drbd

FROM ${BASE} AS read-drbd
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends drbd-utils \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build-read-drbd /opt/read-drbd /opt/read-drbd
ENV PYTHONOPTIMIZE=2 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG VERSION=
ARG SOURCE=
ARG REVISION=
LABEL org.opencontainers.image.title="csi-node-sidecar-drbd" \
      org.opencontainers.image.description="Hands on what drbdsetup prints, for csi-node-sidecar" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}"
ENTRYPOINT ["/opt/read-drbd/bin/csi-node-sidecar"]

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
# And one on PATH, for `kubectl exec POD -c CONTAINER -- csi-node-sidecar ...`.
RUN ["/opt/csi-node-sidecar/bin/python", "-c", "\
import os; \
os.makedirs('/usr/local/bin', exist_ok=True); \
[os.symlink('/opt/csi-node-sidecar/bin/csi-node-sidecar', place) for place in ('/csi-provisioner', '/usr/local/bin/csi-node-sidecar')]"]
# What whoever builds says of the image; hack/image and hack/release hand the version in, of which sidecar/__init__.py is the one source.
# SOURCE is the address of the repository, REVISION the commit that this is: `csi-node-sidecar version -o json` tells it. Last, so that
# another commit builds nothing anew. No licence is claimed for the base's packages: each says its own, and the SBOM lists them.
ARG VERSION=
ARG SOURCE=
ARG REVISION=
ENV CSI_NODE_SIDECAR_REVISION=${REVISION}
LABEL org.opencontainers.image.title="csi-node-sidecar" \
      org.opencontainers.image.description="Node-local storage sidecar for Kubernetes CSI drivers, one instance per node" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}"
# No USER: like upstream's image, so that an unchanged DaemonSet reaches a root-owned socket. Any uid that may reach it will do.
ENTRYPOINT ["/opt/csi-node-sidecar/bin/csi-node-sidecar"]
