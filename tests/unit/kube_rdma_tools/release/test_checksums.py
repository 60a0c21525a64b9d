"""The checksums are those that `sha256sum --check` reads."""

import subprocess

from kube_rdma_tools.release.checksums import NAME, write_checksums


def check(folder):
    words = ["sha256sum", "--check", "--strict", "--quiet", NAME]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode


def test_every_file_but_the_list_itself_is_in_it(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    assert list(write_checksums(tmp_path)) == ["a", "b"]
    assert list(write_checksums(tmp_path)) == ["a", "b"]
    assert check(tmp_path) == 0
    (tmp_path / "a").write_text("changed")
    assert check(tmp_path) != 0
