"""`make touched` runs what lies beside a change, and not what takes long."""

import subprocess

from tests import touched


def beside(*files):
    return touched.beside(files)


def test_a_module_brings_the_tests_of_its_folder():
    (folder,) = {path.rpartition("/")[0] for path in beside("src/kube_rdma/ipam/rules/grant.py")}
    assert folder == "tests/unit/ipam/rules"
    assert "tests/unit/bench/test_page.py" in beside("bench/page.py")
    assert "tests/unit/kube_client/test_faults.py" in beside("src/kube_client/api.py")


def test_what_tools_write_and_read_brings_the_tests_of_that():
    """A folder without tests of its own has those of the folder above."""
    objects = beside("src/kube_rdma/install/rules/objects/metrics.yaml")
    assert {*touched.WRITTEN, "tests/unit/install/rules/test_presets.py"} <= {*objects}
    assert beside("tests/data/trees/exr/tree.txt") == [*touched.TREES]


def test_a_test_brings_itself_and_a_page_its_rules():
    assert beside("tests/unit/ipam/test_gc.py") == ["tests/unit/ipam/test_gc.py"]
    assert beside("docs/ip.md", "README.md") == [touched.PAGES, f"{touched.COMMANDS}[README.md]"]
    assert beside("Makefile") == []


def test_types_are_those_of_changed_files_and_slow_rules_stay_out():
    style, form, types, tests = touched.commands(["src/a.py", "tests/unit/b.py", "docs/ip.md"])
    assert style[-2:] == form[-2:] == ["src/a.py", "tests/unit/b.py"]
    assert types == ["mypy", "src/a.py"]
    assert touched.PAGES in tests
    assert "tests/house/test_docs.py" in tests
    assert "tests/house/test_linters.py" not in tests


def test_a_new_file_counts_and_a_removed_one_does_not(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init")
    for name in ("kept.py", "gone.py", "same.py"):
        (tmp_path / name).write_text("1\n")
    git("add", ".")
    git("commit", "-m", "one")
    (tmp_path / "gone.py").unlink()
    for name in ("kept.py", "new.py"):
        (tmp_path / name).write_text("2\n")
    monkeypatch.setattr(touched, "ROOT", tmp_path)
    assert touched.changed("HEAD") == ["kept.py", "new.py"]
