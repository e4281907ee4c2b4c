"""Reads a kubeconfig. The only file that imports `kubernetes`, which is loaded only where a kubeconfig is named: not in a pod.

It uses the library's reading of one kubeconfig (where it merges several, the current context of the last one counts), its Configuration,
and the TLS context that its ApiClient makes from that. It does not use the typed APIs (CoreV1Api costs 25 MiB and half a second), nor its
watches and informers, which send thousands of requests a second to a broken server.
"""

import os
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.aio import config as loaders
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.kube_config import ConfigNode

from sidecar.errors import Fatal
from sidecar.kube.credentials import Credentials, as_go_trusts
from sidecar.kube.mounted_files_io import digest_of, trouble

_CURRENT: Final = "current-context"
_MOST_NAMES: Final = 8


async def read(paths: str, *, context: str = "") -> Credentials:
    """The credentials of that context, or of the current one; its server may be missing. `Fatal` if it cannot be used.

    `paths` is a file, or several with colons between them, of which some may be missing.
    """
    found, context, namespace = await _loaded(paths, context)
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
        namespace=namespace,
        context=context,
    )


async def _loaded(paths: str, context: str) -> tuple[Any, str, str]:
    """What the library makes of it; the context that it is of, and the context's namespace."""
    files = _listed(paths)
    try:
        if not any(map(Path.is_file, files)):
            raise Fatal(f"kubeconfig {paths}: {'is a directory' if any(map(Path.is_dir, files)) else 'no such file'}")
    except OSError as error:
        raise Fatal(f"kubeconfig {paths}: {trouble(error)}") from error
    found = Configuration()
    found.host = ""
    try:
        merged = _merged(files)
        if why := _why_not(merged.value, context):
            raise Fatal(f"kubeconfig {paths} {why}")
        loader = await loaders.load_kube_config_from_dict(merged, context=context or None, client_configuration=found)
        taken = loader.current_context
        return found, str(taken["name"]), str(taken["context"].get("namespace") or "")
    except Fatal:
        raise
    except (AttributeError, LookupError, TypeError) as error:  # what the library raises for an unexpected structure
        raise Fatal(f"kubeconfig {paths} cannot be used: it is empty, or its content is no kubeconfig") from error
    except Exception as error:  # a malformed file provokes all sorts of errors
        raise Fatal(f"kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error


def _listed(paths: str) -> list[Path]:
    whole = Path(paths).expanduser()
    is_one = os.path.isfile(whole)  # noqa: PTH113  # a Path would raise over a list that is too long for a name
    return [whole] if is_one else [Path(path).expanduser() for path in paths.split(os.pathsep) if path]


def _merged(files: Iterable[Path]) -> ConfigNode:
    """As kubectl merges files: of each name the first one that has it counts, and the first current context that is set.

    Each entry knows its file, since relative paths begin in that file's folder.
    """
    merged: dict[str, Any] = {"clusters": [], "contexts": [], "users": []}
    for file in files:
        content = yaml.safe_load(file.read_bytes()) if file.exists() else None
        if content is None:
            continue
        for part in ("clusters", "contexts", "users"):
            known = {entry["name"] for entry in merged[part]}
            for entry in content.get(part) or ():
                if entry["name"] not in known:
                    known.add(entry["name"])
                    merged[part].append(ConfigNode(f"{file}/{part}/{entry['name']}", entry, str(file)))
        if content.get(_CURRENT):
            merged.setdefault(_CURRENT, content[_CURRENT])
    return ConfigNode("kubeconfig", merged)


def _why_not(merged: dict[str, Any], context: str) -> str:
    """Why this context cannot be used; empty: it can."""
    names = sorted(str(entry["name"]) for entry in merged["contexts"])
    if not names:
        return "cannot be used: it is empty, or its content is no kubeconfig: it has no context"
    if str(context or merged.get(_CURRENT)) in names:
        return ""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    known = f"its contexts are {', '.join(names[:_MOST_NAMES])}{more}"
    if not context and not merged.get(_CURRENT):
        return f"cannot be used: it says of no context that it is the current one; {known}"
    return f'has no context "{context or merged[_CURRENT]}"; {known}'


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
