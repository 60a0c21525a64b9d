"""Everything of the lab that is built once and cached, by `build`.

resolution ─ kernel ──┬─ initrd
debian ─┬─ node base ─┼─ root disk
        ├─ qemu       │
        └─ images ────┼─ image root ─ image disk
go ─ binaries ────────┘

Native nodes need node base, image root and binaries; all else is for machines.
"""

from kube_rdma_lab.build.parts import Demand, Parts, build
from kube_rdma_lab.build.store import BuildEvent, Store

__all__ = ["BuildEvent", "Demand", "Parts", "Store", "build"]
