"""Readers of records and files: kube-rdma's own on a disk that rots, and those of other programs.

One of the tables of target.py. A record is read as an agent that starts reads its folder.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from kube_base.errors import KubeError
from kube_rdma.adapters.cni.conf import places
from kube_rdma.adapters.files import bundle, host_release
from kube_rdma.adapters.journal import codec
from kube_rdma.adapters.journal import journal as glance
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.model.late_binding import Binding, Promise
from kube_rdma_testing.disk import FakeDisk
from tests.fuzz.target import FuzzTarget
from tests.kit.foreign_files import BUNDLE
from tests.kit.foreign_texts import as_file
from tests.unit.adapters.journal.samples import RECORDS

KINDS: Mapping[str, Any] = {
    **codec.ADDRESSES,
    **codec.ATTACHMENTS,
    **codec.BINDINGS,
    **codec.CLAIMS,
    **codec.FUNCTIONS,
    **codec.POOLS,
    **codec.RAILS,
}
"""Every kind of record that an agent keeps, by its name on disk."""

FILE = "a.json"


def disk_with(data: bytes) -> FakeDisk:
    """A journal's folder that holds one file."""
    disk = FakeDisk()
    handle = disk.create(FILE)
    disk.write(handle, data)
    disk.close(handle)
    return disk


def written(kinds: Mapping[str, Any], value: object) -> bytes:
    """The file of a record, as an agent writes it."""
    disk = FakeDisk()
    Journal(disk, kinds).put("a", value)
    return disk.read(FILE)


FILES = {
    f"{folder}/{name}": written(kinds, value)
    for folder, (kinds, values) in RECORDS.items()
    for name, value in values.items()
}
"""The file of each sample of a record, by its folder and name."""

_PROMISE = next(name for name in FILES if name.startswith("bindings/promise"))


def _journal(data: bytes) -> None:
    """What is read is written again, and the same is read then."""
    disk = disk_with(data)
    journal = Journal[Any](disk, KINDS)
    loaded = journal.load()
    assert all(str(fault).strip() for fault in loaded.faults)
    for name, value in loaded.records:
        journal.put(name, value)
    assert Journal[Any](disk, KINDS).load().records == loaded.records


def _glanced(data: bytes) -> None:
    """What the doctor and explain read beside the agent."""
    folder = as_file(data, "glanced", FILE).parent
    glance.glances(folder, "promise", Promise)
    glance.glances(folder, "binding", Binding)
    glance.glance(folder, Promise)


def _tar(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _cluster(data: bytes) -> None:
    """The tar inside of the bundle: fuzzed bytes would not come through the checksum of gzip."""
    bundle.read_cluster_bundle(as_file(gzip.compress(data, 1), "cluster.tar.gz"))


def _runtime_conf(data: bytes) -> None:
    """The same bytes as containerd's configuration and as CRI-O's; it imports no other files."""
    config = as_file(data, "host", "etc", "containerd", "config.toml")
    host = config.parents[2]
    places._read_containerd(host, config)
    places._read_crio(config)


def _links(data: bytes) -> None:
    link_view.recorded_links(as_file(data, "tree", link_view.NETLINK_FILE).parent)


def _recorded(data: bytes) -> None:
    RecordedText("a", data.decode(errors="replace")).holds("class/infiniband")


LINKS = {
    "devices": [
        {
            "index": 0,
            "name": "mlx5_0",
            "firmware": "28.40.1000",
            "ports": [
                {"number": 1, "state": "ACTIVE", "physical_state": "LinkUp", "netdev": "eth0"}
            ],
            "guid": "00:00:00:00:00:00:00:09",
        }
    ],
    "namespace_mode": "shared",
    "faults": [{"path": "a", "reason": "b"}],
}
CONTAINERD = b"""\
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"
"""
CRIO = b"""\
[crio.network]
network_dir = "/etc/cni/net.d/"
plugin_dirs = ["/opt/cni/bin/"]
"""
OS_RELEASE = b"ID=debian\nVERSION_ID=\"12\"\nNAME='Debian GNU/Linux'\n# a\n"
TREE = (
    b"[class/infiniband]\nmlx5_0/ports/1/gids/{0..3}: 0000:0000\nmlx5_0/device -> /devices/a\na/\n"
)

RECORD_TARGETS = (
    FuzzTarget("record of the agent", _journal, tuple(FILES.values()), most=1 << 13),
    FuzzTarget("record, seen by a doctor", _glanced, (FILES[_PROMISE],)),
    FuzzTarget("recorded netlink", _links, (json.dumps(LINKS).encode(),)),
    FuzzTarget(
        "bundle of a cluster",
        _cluster,
        (_tar(**{"nodes/n.json": BUNDLE.encode(), "unseen.json": b'{"nodes": []}'}),),
        most=1 << 15,
    ),
    FuzzTarget("configuration of the runtime", _runtime_conf, (CONTAINERD, CRIO)),
    FuzzTarget(
        "os-release", lambda data: host_release.parsed(data.decode(errors="replace")), (OS_RELEASE,)
    ),
    FuzzTarget("example machine", _recorded, (TREE,), (KubeError, ValueError)),
)
