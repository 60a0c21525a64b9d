"""The way to a server, as a kubeconfig and the environment name it: address, name, proxy.

HTTPS_PROXY, HTTP_PROXY and NO_PROXY are read as Go reads them, so that a program takes the way that
kubectl takes. A kubeconfig's own proxy-url comes first. A proxy is asked for a tunnel by HTTP or by
SOCKS5, and resolves the server's name itself, with socks5 as with socks5h.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_client.kinds import Pairs
from kube_client.kubeconfig import PROXY_REMEDY, PROXY_SCHEMES, ServerEntry, read_url

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """A proxy server; `proof` has headers that authorize the client, `login` is for SOCKS."""

    host: str
    port: int
    tls: bool
    proof: Pairs = field(default=(), repr=False)
    login: tuple[str, str] | None = field(default=None, repr=False)
    socks: bool = False


class ServerRoute(Frozen):
    """A server's address, the name in its certificate, the prefix of its paths, and its proxy."""

    host: str
    port: int
    tls: bool
    server_name: str
    prefix: str = ""
    proxy: ProxyServer | None = None

    @property
    def authority(self) -> str:
        """Return ``host:port``, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find_route(entry: ServerEntry, environment: Mapping[str, str]) -> ServerRoute:
    """Return how to connect to a server, perhaps by a proxy; raise Refused for an unusable one."""
    url = urlsplit(entry.server)
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    proxy = entry.proxy_url or _from_environment(url.scheme, host, port, environment)
    return ServerRoute(
        host,
        port,
        url.scheme == "https",
        entry.tls_server_name or host,
        prefix=url.path.rstrip("/"),
        proxy=_proxy(proxy) if proxy else None,
    )


def _proxy(address: str) -> ProxyServer:
    url = read_url(address if "://" in address else f"http://{address}", PROXY_SCHEMES)
    if url is None:
        raise Refused("HTTPS_PROXY or HTTP_PROXY cannot be used", remedy=PROXY_REMEDY)
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    login = (unquote(url.username), unquote(url.password or "")) if url.username else None
    if url.scheme.startswith("socks"):
        return ProxyServer(host, port, tls=False, login=login, socks=True)
    proof: Pairs = ()
    if login:
        pair = base64.b64encode(":".join(login).encode()).decode()
        proof = (("Proxy-Authorization", f"Basic {pair}"),)
    return ProxyServer(host, port, url.scheme == "https", proof)


def _from_environment(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> str:
    def value(name: str) -> str:
        return environment.get(name.upper()) or environment.get(name.lower()) or ""

    proxy = value(f"{scheme}_proxy")
    return "" if not proxy or _is_direct(host, port, value("no_proxy")) else proxy


def _is_direct(host: str, port: int, exceptions: str) -> bool:
    """Return whether a host needs no proxy: it is this machine, or NO_PROXY excludes it.

    NO_PROXY has addresses, networks, names and suffixes.
    """
    address = _address(host)
    if host == "localhost" or (address and address.is_loopback):
        return True
    for entry in (part.strip().lower() for part in exceptions.split(",")):
        name, _, only = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if only and only != str(port):
            continue
        if name in {"*", host} or (address and _holds(name, address)):
            return True
        if name and address is None and host.endswith(f".{name.removeprefix('*').lstrip('.')}"):
            return True
    return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _holds(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
