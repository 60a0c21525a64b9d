"""Everything of the lab that is built once and cached; `build` is the door.

resolution ─ kernel ──┬─ initrd
debian ─┬─ node base ─┼─ root disk
        ├─ qemu       │
        └─ images ────┼─ image disk
go ─ binaries ────────┘
"""

from kube_rdma_lab.build.parts import Parts, build
from kube_rdma_lab.build.store import Event, Store

__all__ = ["Event", "Parts", "Store", "build"]
