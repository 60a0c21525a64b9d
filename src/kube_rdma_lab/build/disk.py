"""Makes ext4 images from folders, without mounting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kube_rdma_lab.build.shell import Shell, need

# One fixed identity: two builds of the same folder give the same image, and no node mounts by it.
UUID = "6b756265-7264-4d61-8c61-62000000e4d4"
BLOCK = 4096
INODE = 256
# No journal: nodes throw their writes away. No checksums: an emulated CPU computes them slowly.
FEATURES = "^has_journal,^resize_inode,^metadata_csum"
TIMES: Mapping[str, str] = {"E2FSPROGS_FAKE_TIME": "1", "SOURCE_DATE_EPOCH": "1"}


def mkfs(folder: Path, image: Path, *, size: int, inodes: int) -> tuple[str, ...]:
    """Return the mkfs.ext4 command that makes an image of `size` bytes from a folder.

    The image is a sparse file. The command needs the environment TIMES.
    """
    return (
        *(need("mkfs.ext4"), "-q", "-F", "-b", str(BLOCK), "-I", str(INODE), "-N", str(inodes)),
        *("-m", "0", "-O", FEATURES, "-U", UUID),
        *("-E", f"hash_seed={UUID},lazy_itable_init=0,root_owner=0:0"),
        *("-d", str(folder), str(image), f"{size // 1024}k"),
    )


def make_ext4(folder: Path, image: Path, shell: Shell) -> None:
    """Write a folder's content as an ext4 image with little free space."""
    blocks, inodes = _needs(folder)
    # Group descriptors, bitmaps and extent blocks: below 2 %, and a little for small folders.
    size = int((blocks * BLOCK + inodes * INODE) * 1.02) + (16 << 20)
    shell.run(mkfs(folder, image, size=size, inodes=inodes + 64), env=TIMES)


def _needs(folder: Path) -> tuple[int, int]:
    """Return the number of blocks and of inodes that a folder's content takes at most."""
    blocks = inodes = 0
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            size = os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - thousands of files
            blocks += -(-size // BLOCK) + 1
            inodes += 1
    return blocks, inodes
