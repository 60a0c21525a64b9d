"""Several versions in one folder: their names, their order, and where a reader arrives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.release.version import ReleaseVersion
from kube_rdma_tools.site.versions import folder_name, ordered, start, write_index

NUMBERS = st.tuples(*[st.integers(0, 12)] * 3)


@pytest.mark.parametrize(
    ("python", "name"),
    [("0.1.0", "0.1.0"), ("0.2.0rc1", "0.2.0-rc.1"), ("0.2.0.dev7", "dev")],
)
def test_a_tag_has_a_folder_of_its_own_and_all_else_one_together(python, name):
    assert folder_name(ReleaseVersion(python)) == name


@given(st.sets(NUMBERS, min_size=1))
def test_releases_come_newest_first_by_number(numbers):
    names = [".".join(map(str, number)) for number in numbers]
    wanted = [".".join(map(str, number)) for number in sorted(numbers, reverse=True)]
    assert ordered(["dev", "versions.js", *names]) == (*wanted, "dev")


def test_a_reader_arrives_at_the_newest_release_that_is_none_to_try():
    assert ordered(["0.2.0-rc.2", "0.2.0-rc.10", "0.1.0"]) == ("0.2.0-rc.10", "0.2.0-rc.2", "0.1.0")
    assert start(("0.2.0-rc.1", "0.1.0", "dev")) == "0.1.0"
    assert start(("0.2.0-rc.1",)) == "0.2.0-rc.1"
    assert start(("dev",)) == "dev"


def test_the_folder_of_all_versions_has_their_list_and_leads_to_one(tmp_path):
    for name in ("dev", "0.1.0", "0.10.0", "drafts"):
        (tmp_path / name).mkdir()
    write_index(tmp_path)
    listed = (tmp_path / "versions.js").read_text().removeprefix("window.siteVersions = ")
    assert json.loads(listed.rstrip(";\n")) == ["0.10.0", "0.1.0", "dev"]
    assert 'content="0; url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()
