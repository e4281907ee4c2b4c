"""Reads kubeconfigs as kubectl does, without the Kubernetes client library, which costs 15 MiB and a third of a second.

Where a user has an exec plug-in or an auth-provider, `kubeconfig_plugins` has the library ask it; the container image has no library.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sidecar.errors import Fatal
from sidecar.kube.credentials import Credentials, TokenFile, as_go_trusts
from sidecar.kube.kubeconfig_entries import Chosen, Entry, chosen
from sidecar.kube.mounted_files_io import digest_of, trouble

_OPEN_FILES: Final = "/proc/self/fd"


async def read(paths: str, *, context: str = "", clock: Callable[[], float]) -> Credentials:
    """The credentials of that context, or of the current one; its server may be missing. `Fatal` if it cannot be used.

    `paths` is a file, or several with colons between them, of which some may be missing.
    """
    found = chosen(paths, context)
    if found.plugin:
        return await _asked_of_plugin(paths, found)
    server = found.cluster.text("server").rstrip("/")
    try:  # before the TLS library reads them: what changes in between is noticed later
        files = {file: digest_of(file) for file in _certificate_files(found)}
        return Credentials(
            server=server,
            tls=_tls(paths, found),
            authorization=_authorization(found.user, clock),
            is_for_tls=not server.startswith("http://"),
            files=files,
            tls_server_name=found.cluster.text("tls-server-name") or None,
            proxy=found.cluster.text("proxy-url") or None,
            namespace=found.context.text("namespace"),
            context=found.context.name,
        )
    except OSError as error:
        raise Fatal(f"kubeconfig {paths}: {trouble(error)}") from error
    except ValueError as error:  # of a token's file
        raise Fatal(f"kubeconfig {paths} cannot be used: {error}") from error


async def _asked_of_plugin(paths: str, found: Chosen) -> Credentials:
    try:
        from sidecar.kube import kubeconfig_plugins
    except ModuleNotFoundError as error:
        raise Fatal(
            f'kubeconfig {paths}: user "{found.user.name}" gets credentials by {found.plugin}, which cannot be asked here: there is no '
            f"Python module {error.name}, as in the container image; give it a token, a tokenFile or a client certificate, or use the "
            "Python package csi-node-sidecar"
        ) from error
    return await kubeconfig_plugins.read(paths, found)


def _certificate_files(found: Chosen) -> list[str]:
    """The files that count: beside what stands in the kubeconfig itself they do not."""
    asked = ((found.cluster, "certificate-authority"), (found.user, "client-certificate"), (found.user, "client-key"))
    return [entry.path(key) for entry, key in asked if not entry.text(f"{key}-data") and entry.text(key)]


def refuse_both(paths: str, *, is_insecure: bool, has_authority: bool) -> None:
    """As client-go does."""
    if is_insecure and has_authority:
        raise Fatal(f"kubeconfig {paths} has a certificate-authority and says insecure-skip-tls-verify: remove one of them")


def _tls(paths: str, found: Chosen) -> ssl.SSLContext:
    cluster, user = found.cluster, found.user
    is_insecure = cluster.value.get("insecure-skip-tls-verify") or False
    if not isinstance(is_insecure, bool):
        raise Fatal(f"kubeconfig {paths}: its insecure-skip-tls-verify is neither true nor false")
    culprit = "certificate-authority"
    try:
        with _at_hand(cluster, culprit) as authority:
            refuse_both(paths, is_insecure=is_insecure, has_authority=bool(authority))
            context = ssl.create_default_context(cafile=authority)
        culprit = "client-certificate or client-key"
        with _at_hand(user, "client-certificate") as certificate, _at_hand(user, "client-key") as key:
            if certificate:
                context.load_cert_chain(certificate, keyfile=key)
    except (OSError, ValueError) as error:  # the TLS library's are OSErrors
        raise Fatal(f"kubeconfig {paths}: its {culprit} cannot be used: {' '.join(str(error).split())}") from error
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return as_go_trusts(context)


@contextmanager
def _at_hand(entry: Entry, key: str) -> Iterator[str | None]:
    """The name of a file with it, as the TLS library wants it. What stands in the kubeconfig is kept off the disk, where that can be."""
    data = entry.text(f"{key}-data")
    if not data:
        yield entry.path(key) or None
        return
    content = base64.b64decode("".join(data.split()), validate=True)
    if hasattr(os, "memfd_create") and Path(_OPEN_FILES).is_dir():
        with os.fdopen(os.memfd_create(key), "wb", buffering=0) as file:
            file.write(content)
            yield f"{_OPEN_FILES}/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def _authorization(user: Entry, clock: Callable[[], float]) -> Callable[[], Awaitable[str]]:
    """A token's file is read again and again, and counts more than a token, as with client-go. OSError, ValueError: it cannot be read."""
    value = ""
    if token := user.text("token").strip():
        value = f"Bearer {token}"
    elif user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}"
        value = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if user.text("tokenFile"):
        try:
            return TokenFile(Path(user.path("tokenFile")), clock).authorization
        except (OSError, ValueError):
            if not user.text("token"):
                raise

    async def authorization() -> str:
        return value

    return authorization
