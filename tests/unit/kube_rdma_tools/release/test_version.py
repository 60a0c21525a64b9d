"""A tag and the source agree on a version, and both forms of it name the same one."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from kube_base.errors import Broken, Refused
from kube_rdma_tools.release.version import (
    FIGURES,
    ReleaseVersion,
    commit_of,
    decide,
    written_version,
)

NUMBERS = st.integers(min_value=0, max_value=99)
BASES = st.builds("{}.{}.{}".format, NUMBERS, NUMBERS, NUMBERS)
WRITTEN = st.builds("{}{}".format, BASES, st.sampled_from(["", "rc1", "a2", "b12"]))


@given(WRITTEN, NUMBERS)
def test_a_checkout_between_tags_comes_before_the_version_that_it_is_to_become(written, commits):
    version = decide(written, "", commits)
    assert not version.is_final
    assert Version(version.python) < Version(written)


@given(WRITTEN, st.sampled_from(["", ".dev7"]))
def test_both_forms_are_the_same_version(written, suffix):
    """Python reads the form of Semantic Versioning as the version that it is."""
    version = ReleaseVersion(written + suffix)
    assert Version(version.semantic) == Version(version.python)


@pytest.mark.parametrize(
    ("python", "semantic"),
    [
        ("0.1.0", "0.1.0"),
        ("0.2.0rc1", "0.2.0-rc.1"),
        ("0.1.0.dev12", "0.1.0-dev.12"),
        ("0.2.0rc1.dev3", "0.2.0-rc.1.dev.3"),
    ],
)
def test_helm_and_krew_get_semantic_versions(python, semantic):
    assert ReleaseVersion(python).semantic == semantic


def test_a_tagged_commit_is_the_version_that_its_source_names():
    assert decide("0.1.0", "v0.1.0", 0) == ReleaseVersion("0.1.0")
    assert decide("0.2.0rc1", "v0.2.0-rc.1", 0).is_final
    with pytest.raises(Refused, match=r"the tag v0\.1\.1 is not the version 0\.1\.0"):
        decide("0.1.0", "v0.1.1", 0)


def test_after_a_tag_the_source_names_a_later_version():
    assert decide("0.2.0", "v0.1.0", 3) == ReleaseVersion("0.2.0.dev3")
    with pytest.raises(Refused, match="Write the version that comes next"):
        decide("0.1.0", "v0.1.0", 3)


def test_a_source_without_a_version_is_broken():
    assert written_version('x = 1\n__version__ = "1.2.3"\n') == "1.2.3"
    with pytest.raises(Broken):
        written_version("version = 1\n")


@pytest.fixture
def checkout(tmp_path):
    """A repository of one commit, with a program and a file of figures."""
    program, figures = tmp_path / "program.py", tmp_path / FIGURES[1]
    figures.parent.mkdir()
    for file in (program, figures):
        file.write_text("1\n")
    person = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*person, "commit", "-qm", "one")):
        subprocess.run(("git", "-C", tmp_path, *words), check=True)
    return program, figures


def test_a_measurement_that_appends_to_its_file_has_run_from_the_commit(checkout, tmp_path):
    _, figures = checkout
    clean = commit_of(tmp_path, "+")
    figures.write_text("1\n2\n")
    assert commit_of(tmp_path, "+") == clean
    assert commit_of(figures.parent, "+") == clean


def test_a_changed_program_has_not(checkout, tmp_path):
    program, _ = checkout
    clean = commit_of(tmp_path, "+")
    program.write_text("2\n")
    assert commit_of(tmp_path, "+") == f"{clean}+"


def test_what_is_no_checkout_has_no_commit(tmp_path):
    assert commit_of(tmp_path, "+") == "unknown"
