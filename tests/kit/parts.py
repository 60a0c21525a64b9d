"""`python -m tests.kit.parts [--slow]`: build what the lab's tests need, before a lab boots.

Beside running labs the compiler took most of an hour: it shares the processors with emulated
machines. `make test-lab` and CI begin with this; what is built already takes a second. `--slow` is
for what only slow tests use.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kube_base.errors import KubeError
from kube_rdma_lab.build import Demand, build, go, resolution, testroot
from kube_rdma_lab.build.__main__ import show
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import NodeKind
from tests.kit import allocator, gangs, helm, network_managers, prometheus, shared_plugin

CHECKOUT = Path(__file__).parents[2]
MACHINES = CHECKOUT / "tests/lab/machines"


def compiled(store, *, slow):
    """What compilers make: they keep all processors busy by themselves."""
    testroot.user_mode_kernel(store)
    for name in (helm.NEWEST, helm.OLDER):
        helm.build(store, name)
    shared_plugin.build(store)
    go.build_module(store, "flannel", helm.MODULES)
    allocator.build(store)
    go.build_module(store, "meta_plugin", MACHINES)
    if slow:
        go.build_module(store, "mpi-operator", helm.MODULES)
        go.build_module(store, "cilium", helm.MODULES)
        go.build_module(store, "kueue", helm.MODULES)
        gangs.build(store)


def unpacked(store, *, slow):
    """What Debian brings."""
    testroot.build(store, CHECKOUT)
    prometheus.build(store)
    network_managers.tree(store, resolution.stamp(update=False))
    if slow:
        for policy in testroot.Policy:
            testroot.build(store, CHECKOUT, policy)


def main(*, slow):
    """Build all of it, the lab's own parts first."""
    build(report=show)
    if slow:
        build(Demand((NodeKind.NATIVE,), Release.OLDER), report=show)
    with ThreadPoolExecutor(1) as lane, open_store(show) as store:
        beside = lane.submit(unpacked, store, slow=slow)
        compiled(store, slow=slow)
        beside.result()


if __name__ == "__main__":
    try:
        main(slow="--slow" in sys.argv[1:])
    except KubeError as error:
        sys.exit(f"error: {error}")
