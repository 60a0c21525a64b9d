"""A kernel module under another name: made of a small ELF file with what the kernel looks at."""

import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_lab.build.drivers import FILES, LOADED, OFED, PEER, renamed

NAMES = b"\0.shstrtab\0.gnu.linkonce.this_module\0"
SIGNED = b"~Module signature appended~\n"


def module(name, *, sections=NAMES, signature=b""):
    """An ELF file whose struct module has a name behind 24 bytes, as include/linux/module.h has."""
    body = bytes(24) + name.encode().ljust(56, b"\0") + b"behind it"
    start = 64
    table = start + len(body) + len(sections)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 1
    )
    entry = struct.Struct("<IIQQQQIIQQ")
    rows = (
        entry.pack(*([0] * 10)),
        entry.pack(1, 3, 0, 0, start + len(body), len(sections), 0, 0, 1, 0),
        entry.pack(11, 1, 0, 0, start, len(body), 0, 0, 1, 0),
    )
    data = header + body + sections + b"".join(rows)
    if signature:
        data += signature + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(signature)) + SIGNED
    return data


@given(
    st.from_regex(r"[a-z_]{1,40}", fullmatch=True),
    st.from_regex(r"[a-z_]{1,40}", fullmatch=True),
    st.binary(max_size=300),
)
def test_it_differs_in_its_name_alone_and_has_no_signature(old, new, signature):
    assert renamed(module(old, signature=signature), old, new) == module(new)


def test_a_module_of_another_name_is_not_renamed():
    with pytest.raises(ValueError, match="not called rdmavt"):
        renamed(module("dummy"), "rdmavt", "nv_peer_mem")
    with pytest.raises(ValueError, match="no section"):
        renamed(module("rdmavt", sections=NAMES.replace(b"gnu", b"gcc")), "rdmavt", "x")


def test_the_container_loads_and_unloads_the_modules_that_lie_in_its_image():
    text = (FILES / OFED / "usr/local/bin/driver").read_text()
    assert f'MODULES="{" ".join(LOADED)}"' in text
    assert f"for module in {' '.join(LOADED[:0:-1])} {LOADED[0]}; do" in text


@pytest.mark.parametrize(
    ("image", "folder"), [(OFED, "/etc/network"), (PEER, "/run/nvidia/drivers")]
)
def test_a_container_without_the_folders_of_the_vendor_s_does_not_start(tmp_path, image, folder):
    """The only program that it finds says that nothing is mounted; it gets no further."""
    program = tmp_path / "mountpoint"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    ended = subprocess.run(
        ["/bin/bash", FILES / image / "usr/local/bin/driver"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert folder in ended.stdout
    assert ended.stderr == ""
