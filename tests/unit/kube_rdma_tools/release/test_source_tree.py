"""The tree of a release says its version everywhere, and takes nothing that is not committed."""

import subprocess
from pathlib import Path

import pytest
import yaml

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma_tools.release.identity import ReleaseIdentity, check_changelog, of_checkout_as
from kube_rdma_tools.release.source_tree import SourceTree, Stamp, stamps
from kube_rdma_tools.release.version import ReleaseVersion

ROOT = Path(__file__).parents[4]
IDENTITY = ReleaseIdentity(
    version=ReleaseVersion("0.2.0rc1"),
    commit="0123456789abcdef0123456789abcdef01234567",
    epoch=1_700_000_000,
    image="registry.example.com/rdma/kube-rdma",
    homepage="https://project.example.com",
    downloads="https://files.example.com/v0.2.0-rc.1",
)


def test_every_stamp_has_one_place_in_this_checkout():
    for stamp in stamps(IDENTITY):
        assert stamp.text in stamp.apply((ROOT / stamp.file).read_text())


def test_the_chart_says_the_version_of_the_release():
    text = (ROOT / "charts/kube-rdma/Chart.yaml").read_text()
    for stamp in stamps(IDENTITY):
        text = stamp.apply(text) if stamp.file.endswith("Chart.yaml") else text
    chart = yaml.safe_load(text)
    assert (chart["version"], chart["appVersion"]) == ("0.2.0-rc.1", "0.2.0-rc.1")


def test_a_file_that_was_rewritten_is_broken_and_not_left_as_it_is():
    stamp = Stamp("a.py", r"(?m)^a = .*$", "a = 2")
    assert stamp.apply("a = 1\nb = 1\n") == "a = 2\nb = 1\n"
    for text in ("b = 1\n", "a = 1\na = 1\n"):
        with pytest.raises(Broken, match=r"a\.py has \d places"):
            stamp.apply(text)


def test_a_program_of_the_tree_that_fails_says_what_it_printed(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/failing.py").write_text("raise SystemExit('no such card')")
    with pytest.raises(Unavailable, match="no such card"):
        SourceTree(tmp_path, 0).run("failing")


@pytest.fixture
def checkout(tmp_path):
    """A small project with one commit."""

    def git(*words):
        names = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=no")
        subprocess.run(["git", "-C", tmp_path, *names, *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "src/kube_rdma").mkdir(parents=True)
    (tmp_path / "src/kube_rdma/__init__.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    urls = '[project.urls]\nHomepage = "https://project.example.com"\n'
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n{urls}")
    git("add", "--all")
    git("commit", "--message", "first")
    return tmp_path, git


def test_a_tagged_commit_has_its_section_in_the_changelog(checkout):
    root, git = checkout
    git("tag", "v0.2.0")
    with pytest.raises(Refused, match=r"there is no section for 0\.2\.0"):
        of_checkout_as(root, "x", "")
    check_changelog("## [0.2.0] - 2026-11-26\n", ReleaseVersion("0.2.0"))
    with pytest.raises(Refused):
        check_changelog("## [0.2.0]\n", ReleaseVersion("0.2.0"))


def test_what_is_not_committed_is_not_released(checkout):
    root, _ = checkout
    (root / "CHANGELOG.md").write_text("changed\n")
    with pytest.raises(Refused, match="1 changed files are not committed"):
        of_checkout_as(root, "x", "")
