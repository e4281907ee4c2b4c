"""Finds the proxy to the API server in the environment, as Go programs do.

Clusters set HTTPS_PROXY in all pods and exclude their own addresses by CIDRs in NO_PROXY. Python's libraries do not read CIDRs there and
would ask the proxy for 10.96.0.1.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL; None to connect directly, always so for loopback addresses."""
    target = urlsplit(url)
    host, port = (target.hostname or "").rstrip("."), target.port or _PORTS.get(target.scheme, 0)
    proxy = _lookup(environ, f"{target.scheme}_proxy")
    if not proxy or not host or host == "localhost" or is_loopback(host):
        return None
    entries = (entry.strip().lower() for entry in _lookup(environ, "no_proxy").split(","))
    if any(_matches(entry, host, port) for entry in entries if entry):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _lookup(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        return address is not None and _in_network(address, entry)
    name, entry_port = _split_port(entry)
    if entry_port and entry_port != str(port):
        return False
    if address is not None:
        return address == _address(name)
    suffix = name.removeprefix("*")
    return host == suffix or host.endswith("." + suffix.removeprefix("."))


def _split_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    name, colon, port = entry.rpartition(":")
    return (name, port) if colon and port.isdigit() and ":" not in name else (entry, "")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Of an address. A name is none."""
    address = _address(host)
    return address is not None and address.is_loopback


def _in_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
