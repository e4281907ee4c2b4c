"""Has the Kubernetes client library ask a kubeconfig's exec plug-in or auth-provider. The only file that imports `kubernetes`.

It uses the library's reading of one user, its Configuration, and the TLS context that its ApiClient makes from that. It does not use the
typed APIs (CoreV1Api costs 25 MiB and half a second), nor its watches and informers, which send thousands of requests a second to a
broken server.
"""

import ssl
from typing import Any

from kubernetes.aio import config as loaders
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.kube_config import ConfigNode

from sidecar.errors import Fatal
from sidecar.kube.credentials import Credentials, as_go_trusts
from sidecar.kube.kubeconfig import refuse_both
from sidecar.kube.kubeconfig_entries import Chosen, Entry
from sidecar.kube.mounted_files_io import digest_of, trouble


async def read(paths: str, chosen: Chosen) -> Credentials:
    """`Fatal` if it cannot be used."""
    found = Configuration()
    found.host = ""
    try:
        parts = {"clusters": [_node(chosen.cluster, "cluster")], "contexts": [_node(chosen.context, "context")]}
        users = [_node(chosen.user, "user")]
        merged = ConfigNode("kubeconfig", {**parts, "users": users, "current-context": chosen.context.name})
        await loaders.load_kube_config_from_dict(merged, client_configuration=found)
    except (AttributeError, LookupError, TypeError) as error:  # what the library raises for an unexpected structure
        raise Fatal(f"kubeconfig {paths} cannot be used: its {chosen.plugin} is not what it should be") from error
    except Exception as error:  # plug-ins provoke all sorts of errors
        raise Fatal(f"kubeconfig {paths} cannot be used: {' '.join(str(error).split())}") from error
    refuse_both(paths, is_insecure=not found.verify_ssl, has_authority=bool(found.ssl_ca_cert or found.ca_cert_data))
    try:  # before the TLS library reads them: what changes in between is noticed later
        files = {file: digest_of(file) for file in (found.ssl_ca_cert, found.cert_file, found.key_file) if file}
    except OSError as error:
        raise Fatal(f"kubeconfig {paths}: {trouble(error)}") from error

    async def authorization() -> str:
        settings = await found.auth_settings()
        return str((settings.get("BearerToken") or {}).get("value") or "").strip()

    return Credentials(
        server=found.host,
        tls=_tls(found, paths),
        authorization=authorization,
        is_for_tls=not found.host.startswith("http://"),
        files=files,
        tls_server_name=found.tls_server_name or None,
        proxy=found.proxy or None,
        namespace=chosen.context.text("namespace"),
        context=chosen.context.name,
    )


def _node(entry: Entry, kind: str) -> ConfigNode:
    """It knows its file, since relative paths begin in that file's folder."""
    names = {key: entry.text(key) for key in ("cluster", "user") if key in entry.value} if kind == "context" else {}
    return ConfigNode(entry.name, {"name": entry.name, kind: {**entry.value, **names}}, str(entry.file))


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
