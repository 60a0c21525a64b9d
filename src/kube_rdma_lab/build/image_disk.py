"""All images as a containerd data root, filled once on the host: a folder, and a disk made of it.

Importing images in an emulated node takes minutes; containerd on the host does it in seconds.
Every machine gets a copy-on-write disk on top, mounted at /var/lib/containerd, and finds its
images. A native node links to the layers in the folder (node/native/init).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kube_rdma_lab.build import disk, oci
from kube_rdma_lab.build.go import GoBinaries
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.release import Release

# Room for images and for what containers write; a sparse file, unused room costs nothing.
SIZE = 6 << 30
INODES = 128 << 10
# Runs in mount and process namespaces of its own (shell.py), which end with it whatever happens.
# On tmpfs: containerd syncs every layer to disk, and sockets want short paths. Pinned: the
# kubelet's garbage collection must never remove what no registry could bring back.
SCRIPT = """\
set -eu
bin=$1; shift
mount -t tmpfs -o mode=0711 data /media
printf '%s' "$CONTAINERD" > /media/config.toml
"$bin/containerd" --config /media/config.toml &
server=$!
ctl() { "$bin/ctr" --address /media/sock --namespace k8s.io "$@"; }
tries=0
until ctl version > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -le 300 ] || { echo "containerd does not answer"; exit 1; }
    kill -0 $server || { echo "containerd ended"; exit 1; }
    sleep 0.1
done
while [ "$1" != -- ]; do
    ctl images import --platform linux/amd64 "${1#*=}"
    ctl images label "${1%%=*}" io.cri-containerd.image=managed io.cri-containerd.pinned=pinned
    shift
done
shift
kill $server
wait $server
exec "$@"
"""
DATA = Path("/media/root")
CONFIG = f"""\
root = "{DATA}"
state = "/media/state"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
    "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.native"]
[grpc]
  address = "/media/sock"
[ttrpc]
  address = "/media/ttrpc"
"""


def build_root(
    store: Store,
    images: Sequence[oci.Written],
    binaries: GoBinaries,
    name: str = "image-root",
    release: Release = Release.NEWEST,
) -> Path:
    """Build containerd's data root with these images imported; `name` is its name in the store.

    `release` is that of `binaries`, whose containerd decides the format.
    """
    config = f"version = {release.differences.config_version}\n{CONFIG}"

    def make(folder: Path, shell: Shell) -> None:
        pairs = [f"{image.reference}={image.path}" for image in images]
        command = ("cp", "-a", DATA, folder / "root")
        shell.run(
            ["sh", "-c", SCRIPT, "fill", binaries.folder, *pairs, "--", *command],
            env={"CONTAINERD": config},
        )

    inputs = {
        **{image.reference: image.digest for image in images},
        **binaries.inputs("containerd", "ctr"),
        "recipe": f"{SCRIPT}\n{config}",
    }
    return store.get(release.shelf(name), inputs, make) / "root"


def build_disk(store: Store, root: Path) -> Path:
    """Build the ext4 image of a data root that `build_root` made."""

    def make(folder: Path, shell: Shell) -> None:
        command = disk.mkfs(root, folder / "images.ext4", size=SIZE, inodes=INODES)
        shell.run(command, env=disk.TIMES)

    inputs = {"root": root.parent.name, "size": str(SIZE), "recipe": disk.FEATURES}
    return store.get("image-disk", inputs, make) / "images.ext4"
