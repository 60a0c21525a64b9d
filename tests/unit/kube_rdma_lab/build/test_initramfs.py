"""The archives of the initramfs, read back by rules of the format, not by our own writer."""

import gzip
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_lab.build import cpio, initrd

NAMES = st.text("abcxyz", min_size=1, max_size=12)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def read(data: bytes) -> list[tuple[str, int, bytes]]:
    """Read archives that follow one another, as the kernel does (init/initramfs.c)."""
    found = []
    at = 0
    while at < len(data):
        if data[at] == 0:
            at += 1
            continue
        assert at % 4 == 0
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + name_size - 1].decode()
        start = (at + 110 + name_size + 3) & ~3
        if name != "TRAILER!!!":
            found.append((name, mode, data[start : start + size]))
        at = (start + size + 3) & ~3
    return found


@given(st.dictionaries(PATHS, st.binary(max_size=40), max_size=6))
def test_files_come_back(files):
    """Any names and sizes survive, and a folder always comes before what lies in it."""
    flat = {name.replace("/", "/d/"): data for name, data in files.items()}
    back = read(cpio.archive(cpio.file(f"top/{name}.f", data) for name, data in flat.items()))
    plain = {name: data for name, mode, data in back if stat.S_ISREG(mode)}
    assert plain == {f"top/{name}.f": data for name, data in flat.items()}
    seen = set()
    for name, mode, _ in back:
        parent = name.rpartition("/")[0]
        assert not parent or parent in seen
        if stat.S_ISDIR(mode):
            assert name not in seen
            seen.add(name)


def test_archives_can_be_joined():
    """A lab appends a node's files to the shared archive: compressed ones end aligned too."""
    shared = cpio.compressed(cpio.archive([cpio.file("init", b"#!", 0o755)]))
    node = cpio.archive([cpio.file("lab/name", b"node-1")])
    assert len(shared) % 4 == 0
    joined = gzip.decompress(shared.rstrip(b"\0") + bytes(8)) + node
    files = {name: (mode, data) for name, mode, data in read(joined)}
    assert files["init"] == (stat.S_IFREG | 0o755, b"#!")
    assert files["lab/name"] == (stat.S_IFREG | 0o644, b"node-1")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_do_not_depend_on_the_builder(tmp_path, mask):
    """Of a file's mode only the executable bit counts, as in git."""
    before = os.umask(mask)
    try:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/run").touch(0o777)
        (tmp_path / "plain").touch()
        (tmp_path / "link").symlink_to("plain")
    finally:
        os.umask(before)
    found = {entry.path: oct(entry.mode) for entry in cpio.from_folder(tmp_path)}
    assert found == {
        "bin": oct(stat.S_IFDIR | 0o755),
        "bin/run": oct(stat.S_IFREG | 0o755),
        "link": oct(stat.S_IFLNK | 0o777),
        "plain": oct(stat.S_IFREG | 0o644),
    }


def test_init_is_a_valid_program():
    """The first program of a node is executable and has no syntax error."""
    assert os.access(initrd.INIT, os.X_OK)
    assert initrd.INIT.read_bytes().startswith(b"#!/bin/busybox sh\n")
    assert os.system(f"sh -n {initrd.INIT}") == 0  # noqa: S605


def test_paths_are_the_only_place_that_knows_the_cache(monkeypatch, tmp_path):
    """Our variable wins, then the desktop's standard, then the home folder."""
    from kube_rdma_lab.paths import cache_root

    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.delenv("KUBE_RDMA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_root() == Path("/elsewhere/.cache/kube-rdma")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_root() == Path("/var/cache/kube-rdma")
    monkeypatch.setenv("KUBE_RDMA_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
