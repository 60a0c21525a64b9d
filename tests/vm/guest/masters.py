"""What sysfs tells of an interface with a master, and what the kernel allows there.

For test_bonds.py here, and for the unit tests, whose kernel may know bridges alone. A script,
because it has network and mount namespaces of its own.
"""

import json
import subprocess
import sys

# A slave, and what the kernel says to a macvlan on it and on its master.
SCRIPT = """
import json, pathlib, subprocess, sys
from kube_rdma.adapters.kernel.sysfs.netdev import NetdevTree
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree

def works(*words):
    return subprocess.run(("ip", "link", *words), capture_output=True).returncode == 0

kind = sys.argv[1]
subprocess.run(("mount", "-t", "sysfs", "none", "/sys"), check=True)
assert works("add", "m0", "type", kind)
assert works("add", "v0", "type", "veth", "peer", "name", "w0")
assert works("set", "v0", "master", "m0")
tree = SysfsTree(pathlib.Path("/sys"))
links = NetdevTree(tree)
(slave,), (free,) = links.of(["v0"]), links.of(["w0"])
print(json.dumps({
    "master": slave.master,
    "bonded": slave.bonded,
    "free": free.master,
    "on slave": works("add", "link", "v0", "name", "x0", "type", "macvlan"),
    "on master": works("add", "link", "m0", "name", "x1", "type", "macvlan"),
}))
"""


def facts(kind):
    """What it finds out about a slave of a bond or bridge, by word."""
    words = ("unshare", "--net", "--mount", sys.executable, "-c", SCRIPT, kind)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(kind):
    """What has to come out."""
    return {
        "master": "m0",
        "bonded": kind == "bond",
        "free": None,
        "on slave": False,
        "on master": True,
    }
