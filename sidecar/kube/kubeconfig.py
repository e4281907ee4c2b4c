"""Reads a kubeconfig. The only file that imports `kubernetes`, which is loaded only where a kubeconfig is named: not in a pod.

It uses the library's loader, its Configuration, and the TLS context that its ApiClient makes from that. It does not use the typed APIs
(CoreV1Api costs 25 MiB and half a second), nor its watches and informers, which send thousands of requests a second to a broken server.
"""

import os
import ssl
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import config as loaders
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.kube_config import ConfigNode

from sidecar.errors import Fatal
from sidecar.kube.credentials import Credentials, as_go_trusts
from sidecar.kube.mounted_files_io import digest_of, trouble


async def read(paths: str) -> Credentials:
    """The credentials of its current context, whose server may be missing. `Fatal` if it cannot be used."""
    found = await _loaded(paths)
    if not found.verify_ssl and (found.ssl_ca_cert or found.ca_cert_data):  # refused by client-go as well
        raise Fatal(f"kubeconfig {paths} has a certificate-authority and says insecure-skip-tls-verify: remove one of them")
    try:  # before the TLS library reads them: what changes in between is noticed later
        files = {file: digest_of(file) for file in (found.ssl_ca_cert, found.cert_file, found.key_file) if file}
    except OSError as error:
        raise Fatal(f"kubeconfig {paths}: {trouble(error)}") from error

    async def authorization() -> str:
        settings = await found.auth_settings()
        # A token file that ends in a newline would be refused as a header.
        return str((settings.get("BearerToken") or {}).get("value") or "").strip()

    return Credentials(
        server=found.host,
        tls=_tls(found, paths),
        authorization=authorization,
        is_for_tls=not found.host.startswith("http://"),
        files=files,
        tls_server_name=found.tls_server_name or None,
        proxy=found.proxy or None,
    )


async def _loaded(paths: str) -> Any:
    files = _listed(paths)
    try:
        if not any(map(Path.is_file, files)):
            raise Fatal(f"kubeconfig {paths}: {'is a directory' if any(map(Path.is_dir, files)) else 'no such file'}")
    except OSError as error:
        raise Fatal(f"kubeconfig {paths}: {trouble(error)}") from error
    found = Configuration()
    found.host = ""
    try:
        if os.pathsep in str(files[0]):  # the loader would take the one file for a list of files
            await loaders.load_kube_config_from_dict(_content(files[0]), client_configuration=found)
        else:
            await loaders.load_kube_config(paths, client_configuration=found, persist_config=False)
    except (AttributeError, LookupError, TypeError) as error:  # what the library raises for an unexpected structure
        raise Fatal(f"kubeconfig {paths} cannot be used: it is empty, or its content is no kubeconfig") from error
    except Exception as error:  # a malformed file provokes all sorts of errors
        raise Fatal(f"kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error
    return found


def _listed(paths: str) -> list[Path]:
    """The files in KUBECONFIG. The loader skips missing ones, and if all are missing its error does not say so."""
    whole = Path(paths).expanduser()
    is_one = os.path.isfile(whole)  # noqa: PTH113  # a Path would raise over a list that is too long for a name
    return [whole] if is_one else [Path(path).expanduser() for path in paths.split(os.pathsep) if path]


def _content(file: Path) -> Any:
    """The content with its file's name, since relative paths in a kubeconfig begin in its folder."""
    return ConfigNode(str(file), yaml.safe_load(file.read_bytes()), str(file))


def _tls(found: Any, paths: str) -> ssl.SSLContext:
    try:
        return as_go_trusts(ApiClient(configuration=found).rest_client.ssl_context)
    except (OSError, ValueError) as error:  # the TLS library's are OSErrors
        raise Fatal(f"kubeconfig {paths}: its {_culprit(found)} cannot be used: {' '.join(str(error).split())}") from error


def _culprit(found: Any) -> str:
    """Which entry the TLS library refused. Its error does not say: it got data in a kubeconfig as a file without a name."""
    try:
        ssl.create_default_context(cafile=found.ssl_ca_cert, cadata=found.ca_cert_data)
    except (OSError, ValueError):
        return "certificate-authority"
    return "client-certificate or client-key"
