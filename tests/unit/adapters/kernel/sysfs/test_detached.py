"""A sysfs that is mounted for another namespace is read whole, although no path leads to it."""

import os

from kube_rdma.adapters.kernel.pod.namespaces import make_namespace
from kube_rdma.adapters.kernel.sysfs.pod import sysfs_inside
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree


def test_the_tree_is_that_of_the_namespace_and_not_of_the_machine():
    """Not what stands at the machine's ``/``, which is where such a mount seems to be."""
    namespace = make_namespace()
    try:
        with sysfs_inside(namespace) as root:
            tree = SysfsTree(root)
            names = tree.names("class/net")
            place = tree.place("class/net/lo")
    finally:
        os.close(namespace)
    assert names == ("lo",)
    assert place == "devices/virtual/net/lo"
    assert not tree.faults
