"""Debian trees of another architecture, which are unpacked and never run here."""

from kube_rdma_lab.build import debian


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
