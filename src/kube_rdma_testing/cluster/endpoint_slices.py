"""What an API server does to an EndpointSlice before storing it: refuses it, or drops empty lists.

Follows ValidateEndpointSlice of Kubernetes 1.36.3, pkg/apis/discovery/validation/validation.go, and
ValidateEndpointIP of pkg/apis/core/validation. Empty lists are null afterwards, as their encoding
in etcd does not tell them from absent ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address

from kube_rdma_testing.cluster.fields import Document

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSIONS = {"IPv4": 4, "IPv6": 6}


def kept(document: Document) -> Document:
    """Return an EndpointSlice as the server stores it."""
    lists = {name: document.get(name) or None for name in ("endpoints", "ports")}
    return {**document, **lists}


def faults(document: Document, old: Document | None) -> Iterator[str]:
    """Yield the reasons for which the server refuses an EndpointSlice, or its change."""
    kind, endpoints = document.get("addressType", ""), document.get("endpoints") or ()
    if kind not in (*_VERSIONS, "FQDN"):
        yield "addressType: Unsupported value"
    if old and old["addressType"] != kind:
        yield "addressType: Invalid value: field is immutable"
    if len(endpoints) > 1000:
        yield f"endpoints: Too many: {len(endpoints)}: must have at most 1000 items"
    for endpoint in endpoints:
        addresses, hostname = endpoint.get("addresses") or (), endpoint.get("hostname")
        if not 1 <= len(addresses) <= 100:
            yield "endpoints.addresses: must contain at least 1 address, at most 100"
        if hostname is not None and not _LABEL.fullmatch(hostname):
            yield f"endpoints.hostname: Invalid value: {hostname}: must be a DNS label"
        for address in addresses if kind in _VERSIONS else ():
            yield from (f"endpoints.addresses: {address}: {why}" for why in _faults(address, kind))
    ports = document.get("ports") or ()
    names = [port.get("name") for port in ports]
    if len(ports) > 20_000 or len(set(names)) < len(names):
        yield "ports: Too many, or a duplicate name"


def _faults(text: str, kind: str) -> Iterator[str]:
    try:
        address = ip_address(text)
    except ValueError:
        yield "must be a valid IP address"
        return
    if address.version != _VERSIONS[kind] or getattr(address, "ipv4_mapped", None):
        yield f"must be an {kind} address"
    if getattr(address, "scope_id", None):
        yield "must be a valid IP address"
    if address.is_unspecified or address.is_loopback:
        yield "may not be unspecified or in the loopback range"
    if address.is_link_local or text.startswith(("224.0.0.", "ff02:")):
        yield "may not be in the link-local range"
