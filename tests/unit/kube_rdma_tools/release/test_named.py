"""CHANGELOG names the commit of a version, and a release is built from a clone of it."""

import subprocess

import pytest

import kube_rdma
from kube_base.errors import Refused
from kube_rdma_tools.release import named
from kube_rdma_tools.release.version import ReleaseVersion, of_checkout
from tests.house.tree import ROOT

MOST = 20  # lines of a version that people read
SECTION = "## [0.2.0] - 2026-11-29\n"


def git(folder, *words):
    argv = ["git", "-C", folder, "-c", "user.name=A", "-c", "user.email=a@example.org", *words]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository whose second commit names the first one as version 0.2.0."""
    root = tmp_path / "checkout"
    source = root / "src/kube_rdma/__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text('__version__ = "0.2.0"\n')
    (root / named.CHANGELOG).write_text(f"{SECTION}\n- new\n")
    git(tmp_path, "init", "-q", root)
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    commit = git(root, "rev-parse", "HEAD")
    (root / named.CHANGELOG).write_text(f"{SECTION}\nCommit: `{commit}`\n\n- new\n")
    git(root, "commit", "-qam", "two")
    return root


def test_a_version_is_built_from_the_commit_that_is_named(checkout, tmp_path):
    tree = tmp_path / "tree"
    named.clone(checkout, "0.2.0", tree)
    assert git(tree, "rev-parse", "HEAD") == git(checkout, "rev-parse", "HEAD~1")
    assert of_checkout(tree) == ReleaseVersion("0.2.0")
    assert not of_checkout(checkout).is_final


def test_a_tag_has_to_be_the_commit_that_is_named(checkout, tmp_path):
    git(checkout, "tag", "-am", "release", "v0.2.0", "HEAD~1")
    named.clone(checkout, "0.2.0", tmp_path / "same")
    git(checkout, "tag", "-f", "v0.2.0", "HEAD")
    with pytest.raises(Refused, match=r"the tag v0\.2\.0 is another commit"):
        named.clone(checkout, "0.2.0", tmp_path / "other")


def test_a_version_without_a_commit_is_refused_with_those_that_have_one(checkout, tmp_path):
    with pytest.raises(Refused, match=r"version '0\.3\.0'; versions with one: 0\.2\.0"):
        named.clone(checkout, "0.3.0", tmp_path / "tree")
    (checkout / named.CHANGELOG).write_text(SECTION)
    with pytest.raises(Refused, match="versions with one: none"):
        named.clone(checkout, "0.2.0", tmp_path / "tree")


def test_the_changelog_of_this_project_names_its_versions():
    """Only the version of the source may lack its commit: no commit names itself."""
    text = (ROOT / named.CHANGELOG).read_text()
    known = named.commits(text)
    without = {version for version, commit in known.items() if not commit}
    assert {"0.1.0", "0.2.0"} <= known.keys()
    assert without <= {ReleaseVersion(kube_rdma.__version__).semantic}
    for section in text.split("\n## ")[1:]:
        lines = [line for line in section.splitlines()[1:] if line]
        assert len(lines) <= MOST, section.splitlines()[0]
