"""Debian trees: those of another architecture, which are not run here, and what is in them."""

import pytest

from kube_base.errors import Broken
from kube_rdma_lab.build import debian

ENTRY = """\
Package: {name}
Version: {version}
Architecture: arm64
Depends: libc6 (>= 2.36), {name}-base
Description: a thing
 Package: not-a-field
SHA256: {digest}
"""
LIBZ = debian.Package("zlib1g", "1:1.2.13", "b" * 64, ("libc6", "zlib1g-base"), "arm64")
DASH = debian.Package("dash", "0.5", "a" * 64, ("libc6", "dash-base"), "arm64")


def test_an_unpacked_tree_gets_the_links_of_a_configured_one(tmp_path):
    """What /bin and /lib held is below /usr then, beside what was there."""
    for name in ("bin/dash", "lib/ld.so", "usr/bin/env", "etc/issue"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "bin/sh").symlink_to("dash")
    debian.merge_usr(tmp_path)
    assert (tmp_path / "bin").readlink().as_posix() == "usr/bin"
    assert (tmp_path / "bin/sh").read_text() == "bin/dash"
    assert (tmp_path / "lib/ld.so").read_text() == "lib/ld.so"
    assert (tmp_path / "usr/bin/env").read_text() == "usr/bin/env"
    assert not (tmp_path / "etc").is_symlink()
    debian.merge_usr(tmp_path)


def test_the_tables_of_characters_go_from_every_architecture(tmp_path):
    for machine in ("x86_64", "aarch64"):
        (tmp_path / f"usr/lib/{machine}-linux-gnu/gconv").mkdir(parents=True)
        (tmp_path / f"usr/lib/{machine}-linux-gnu/gconv/UTF-7.so").touch()
    debian.strip(tmp_path)
    assert not list(tmp_path.rglob("*.so"))


def test_this_machine_s_trees_are_made_from_what_they_were_made_from_before():
    """Or every store would build them anew."""
    tree = debian.DebianTree("bookworm", "essential", ("python3",))
    assert tree.inputs().keys() == {"suite", "variant", "packages", "removed"}
    foreign = debian.DebianTree("bookworm", "extract", ("python3",), "arm64")
    assert foreign.inputs()["architecture"] == "arm64"


@pytest.fixture
def tree(tmp_path):
    """What mmdebstrap leaves: an index with a package that is not in the tree, and one that is."""
    lists = tmp_path / "var/lib/apt/lists"
    lists.mkdir(parents=True)
    entries = [("dash", "0.5", "a"), ("zlib1g", "1:1.2.13", "b"), ("mawk", "1.3", "c")]
    texts = [ENTRY.format(name=n, version=v, digest=d * 64) for n, v, d in entries]
    (lists / "mirror_main_binary-arm64_Packages").write_text("\n".join(texts))
    (tmp_path / "var/cache/apt/archives").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg").mkdir()
    return tmp_path


def test_packages_that_were_only_unpacked_are_those_of_apts_cache(tree):
    for name in ("zlib1g_1%3a1.2.13_arm64.deb", "dash_0.5_arm64.deb"):
        (tree / "var/cache/apt/archives" / name).touch()
    assert debian.installed(tree) == (DASH, LIBZ)


def test_packages_that_were_installed_are_those_of_dpkg(tree):
    status = "Package: dash\nStatus: install ok installed\nVersion: 0.5\nDescription: a\n b: c\n\n"
    (tree / "var/lib/dpkg/status").write_text(status)
    assert debian.installed(tree) == (DASH,)


def test_a_package_that_the_index_does_not_have_is_broken(tree):
    (tree / "var/cache/apt/archives/dash_0.6_arm64.deb").touch()
    with pytest.raises(Broken, match=r"index does not have dash 0\.6"):
        debian.installed(tree)
