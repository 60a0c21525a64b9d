"""Before and behind Sphinx: its environment is missing, its warnings are faults of pages."""

from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma_tools.site import build, source


def test_without_sphinx_the_word_that_installs_it_is_named(tmp_path):
    with pytest.raises(Refused, match=r"build/docs.*not installed.*make docs"):
        build.site(tmp_path, tmp_path / "site", "https://project.example")
    assert not (tmp_path / "site").exists()


def test_faults_name_the_files_of_the_checkout():
    stderr = "/s/docs/index.md:3: WARNING: 'myst' target not found\n\nWARNING: slow index.md\n"
    assert list(build.complaints(stderr, Path("/s"))) == [
        "docs/README.md:3: WARNING: 'myst' target not found",
        "WARNING: slow index.md",
    ]


def test_the_source_holds_pages_and_pictures_under_their_names_of_the_site(tmp_path):
    checkout, folder = tmp_path / "checkout", tmp_path / "source"
    for name, text in {
        "README.md": "[docs](docs/README.md) [code](src/a.py)\n",
        "docs/README.md": "## Start\n| [A](a.md) | read |\n",
        "docs/a.md": "# A\n![p](p.svg)\n",
        "docs/p.svg": "<svg/>",
        "src/a.py": "",
    }.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    source.write(checkout, folder, "https://project.example")
    written = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    assert written == {"index.md", "docs/index.md", "docs/a.md", "docs/p.svg"}
    start = (folder / "index.md").read_text()
    assert start.startswith("[docs](docs/index.md) [code](https://project.example/src/a.py)\n")
    assert "A </docs/a>" in start
    assert (folder / "docs/a.md").read_text() == "# A\n![p](p.svg)\n"
