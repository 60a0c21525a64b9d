"""THE table of node labels: every key that kube-rdma writes or reads as topology, and its meaning.

docs/labels.md shows it, config/admission allows an agent these keys and no others; tests compare
both. pools/rules/labels/wanted gives the values. The feature labels are those of Node Feature
Discovery (NFD), by its names and ways to spell a value. Drivers and operators of others select by
them, so they are written only where an administrator asks for them.
"""

from __future__ import annotations

import re

from kube_base.frozen import Frozen

FEATURE = "feature.node.kubernetes.io"
KERNEL = f"{FEATURE}/kernel-version"
RELEASE = f"{FEATURE}/system-os_release"
VENDOR = "VENDOR"  # in the key of a row: four hexadecimal digits

LINK_LAYER = "kube-rdma.io/link-layer"
RATE = "kube-rdma.io/rate-gbps"
PORTS = "kube-rdma.io/ports"
MODE = "kube-rdma.io/mode"
NAMESPACES = "kube-rdma.io/rdma-namespaces"
GPUS_NEAR = "kube-rdma.io/gpus-near"
RAILS = "kube-rdma.io/rails"
FABRIC = "kube-rdma.io/fabric"

# What an agent remembers at the Node object: the labels that it wrote, with their values.
REMEMBERED = "kube-rdma.io/node-labels"

_VENDOR_DIGITS = re.compile(r"[0-9a-f]{4}")


class LabelRow(Frozen):
    """One label. `by_agent` is False where the administrator alone gives it."""

    key: str
    values: str
    meaning: str
    by_agent: bool = True


TABLE = (
    LabelRow(
        f"{FEATURE}/pci-{VENDOR}.present",
        "`true`",
        "a network card or a GPU of this PCI vendor; at most 8 vendors",
    ),
    LabelRow(f"{KERNEL}.full", "`6.8.0-45-generic`", "the running kernel"),
    LabelRow(f"{KERNEL}.major", "`6`", "its first number"),
    LabelRow(f"{KERNEL}.minor", "`8`", "its second number"),
    LabelRow(f"{KERNEL}.revision", "`0`", "its third number"),
    LabelRow(f"{RELEASE}.ID", "`ubuntu`", "the host's distribution"),
    LabelRow(f"{RELEASE}.VERSION_ID", "`24.04`", "the version of the distribution"),
    LabelRow(f"{RELEASE}.VERSION_ID.major", "`24`", "its first number"),
    LabelRow(f"{RELEASE}.VERSION_ID.minor", "`04`", "its second number"),
    LabelRow(LINK_LAYER, "`ethernet`, `infiniband`, `mixed`", "what the RDMA ports speak"),
    LabelRow(RATE, "`400`", "Gbit/s of the fastest active RDMA port, cut to a whole number"),
    LabelRow(PORTS, "`8`", "RDMA ports, without those of virtual functions"),
    LabelRow(
        MODE,
        "`hca`, `exclusive`, `shared`, `shared-multi`, `sriov`, `mixed`",
        "how the node's pools give their cards",
    ),
    LabelRow(NAMESPACES, "`shared`, `exclusive`", "the kernel's RDMA namespace mode"),
    LabelRow(GPUS_NEAR, "`8`", "GPUs with an RDMA card below the same host bridge"),
    LabelRow(RAILS, "`8`", "rails that the node's cards are on"),
    LabelRow(
        FABRIC,
        "`fec0000000000001`",
        "InfiniBand subnet prefixes, sorted, with `.` between; the default prefix names no fabric",
    ),
    LabelRow("kube-rdma.io/block", "any", "block of the fabric, for schedulers", by_agent=False),
    LabelRow("kube-rdma.io/leaf", "any", "leaf switch, for schedulers", by_agent=False),
    LabelRow(
        "kube-rdma.io/serve",
        "`plugin`, `claims`",
        "by which way pods get the node's cards",
        by_agent=False,
    ),
)

_KEYS = frozenset(row.key for row in TABLE if row.by_agent)


def writes(key: str) -> bool:
    """Whether an agent may write a label of this key."""
    return _generic(key) in _KEYS


def is_nfd(key: str) -> bool:
    """Whether a key is below the prefix of Node Feature Discovery."""
    return key.startswith(f"{FEATURE}/")


def _generic(key: str) -> str:
    """The key as the table has it."""
    before, middle, after = key.partition("/pci-")
    vendor, dot, end = after.partition(".")
    if middle and dot and _VENDOR_DIGITS.fullmatch(vendor):
        return f"{before}{middle}{VENDOR}.{end}"
    return "" if VENDOR in key else key
