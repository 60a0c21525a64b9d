"""The servers of mounted storage, as far as the kernel names them: who takes a card away ends them.

netdev_usage.py asks for them, so that no mode gives away the card that leads to one. NFS lists its
servers for each network namespace, whatever mount namespace they are mounted in
(nfs_server_list_show, fs/nfs/client.c); NVMe over fabrics has them in sysfs
(nvme_sysfs_show_address, drivers/nvme/host/sysfs.c); Lustre names its management client after the
server's LNet address. Storage of user space (Weka, SPDK) is not the kernel's to tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.ipam import Address

NFS_SERVERS = Path("/proc/self/net/nfsfs/servers")

_NFS = re.compile(r"v\d+ ([0-9a-f]{8}|[0-9a-f]{32}) ")  # as RPC_DISPLAY_HEX_ADDR prints it
_NVME = re.compile(r"\btraddr=([0-9a-fA-F.:]+)")
_LUSTRE = re.compile(r"MGC([0-9a-fA-F.:]+)@\w+")


def storage_servers(tree: SysfsTree, nfs: Path = NFS_SERVERS) -> Iterator[tuple[str, Address]]:
    """What each is called for people, and its address; nothing where there is no such storage."""
    yield from _nfs(nfs)
    for name in tree.names("class/nvme", required=False):
        match = _NVME.search(tree.text(f"class/nvme/{name}/address", required=False) or "")
        yield from _called(name, match[1] if match else "")
    for name in tree.names("fs/lustre/mgc", required=False):
        match = _LUSTRE.fullmatch(name)
        yield from _called("Lustre", match[1] if match else "")


def _nfs(servers: Path) -> Iterator[tuple[str, Address]]:
    lines: list[str] = []
    with suppress(OSError):
        lines = servers.read_text(errors="replace").splitlines()
    for match in filter(None, map(_NFS.match, lines)):
        number, wide = int(match[1], 16), len(match[1]) > 8
        address = IPv6Address(number) if wide else IPv4Address(number)
        yield f"NFS of {address}", address


def _called(what: str, text: str) -> Iterator[tuple[str, Address]]:
    """Nothing for what is no IP address: a local NVMe disk has none, Fibre Channel another."""
    with suppress(ValueError):
        yield f"{what} of {text}", ip_address(text)
