"""Debian's mirrors are read from the machine's own apt configuration, in both of its styles."""

import pytest

from kube_base.errors import Refused
from kube_rdma_lab.build import sources
from kube_rdma_lab.build.sources import Mirrors, find_mirrors, parse_deb822, parse_one_line

DEB822 = """\
# the archive
Types: deb deb-src
# an old address stood here
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs:
 http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] http://mirror.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main contrib # updates
"""
FOREIGN = """\
deb https://vendor.example/apt vendor-bookworm main
deb https://engine.example/linux/debian bookworm stable
"""
EXPECTED = Mirrors("http://mirror.example/debian", "http://mirror.example/debian-security")


@pytest.mark.parametrize(
    "found", [parse_deb822(DEB822), parse_one_line(ONE_LINE)], ids=["deb822", "one-line"]
)
def test_both_styles_give_the_same_mirrors(found):
    """Options, comments, source packages and folded lines change nothing."""
    assert find_mirrors(list(found)) == EXPECTED


def test_foreign_archives_are_not_debian():
    """Other vendors use Debian's suite names, or its component, never both."""
    assert find_mirrors(list(parse_one_line(FOREIGN))) is None


def test_disabled_source_does_not_count():
    """A source that apt leaves alone is left alone."""
    text = DEB822.replace("Types: deb deb-src", "Types: deb\nEnabled: no")
    assert find_mirrors(list(parse_deb822(text))) is None


def test_broken_lines_are_passed_over():
    """What apt would complain about does not stop us."""
    assert list(parse_one_line("deb\ndeb http://x\n\n")) == []
    assert find_mirrors(list(parse_deb822("Types: deb\nSuites: bookworm\n"))) is None


def test_lines_of_a_suite():
    """Releases come with their security updates, backports are an archive of their own."""
    assert EXPECTED.lines("trixie") == (
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian-security trixie-security main",
    )
    assert len(EXPECTED.lines("trixie-backports")) == 1
    assert len(Mirrors("http://mirror.example/debian").lines("trixie")) == 1


def test_all_files_of_a_machine(tmp_path):
    """The main file and both kinds of part files are read; other files are not."""
    (tmp_path / "sources.list").write_text(FOREIGN)
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (parts / "old.list.save").write_text("deb http://wrong.example/debian bookworm main\n")
    assert find_mirrors(sources.machine_sources(tmp_path)) == EXPECTED


def test_variable_overrides_the_machine(monkeypatch):
    """A mirror named in the environment is used before all others."""
    monkeypatch.setattr(sources, "machine_sources", lambda: list(parse_one_line(ONE_LINE)))
    monkeypatch.setenv(sources.MIRROR_VARIABLE, "http://other.example/debian")
    assert sources.mirrors() == Mirrors("http://other.example/debian", EXPECTED.security)


def test_machine_without_debian_is_refused(monkeypatch):
    """On another distribution the user is told which variable to set."""
    monkeypatch.setattr(sources, "machine_sources", list)
    monkeypatch.delenv(sources.MIRROR_VARIABLE, raising=False)
    with pytest.raises(Refused, match=sources.MIRROR_VARIABLE):
        sources.mirrors()
