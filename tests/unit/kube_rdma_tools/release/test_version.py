"""A tag and the source agree on a version, and both forms of it name the same one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from kube_base.errors import Broken, Refused
from kube_rdma_tools.release.version import ReleaseVersion, decide, written_version

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
