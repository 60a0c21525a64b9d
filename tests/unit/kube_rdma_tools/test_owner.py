"""What needs an owner is written by one command, which asks for what it does not know."""

import re
import shutil

import pytest
import yaml
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma_tools.owner import ROOT, main

SHARED = ("SECURITY.md", "charts/kube-rdma/Chart.yaml")
ANSWERS = {
    "--owner": "@acme/rdma",
    "--repository": "https://forge.example/acme/kube-rdma.git",
    "--mail": "rdma@acme.example",
}


@pytest.fixture
def copy(tmp_path):
    """What the command writes into, as this checkout has it, and its folders."""
    for name in SHARED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".github/ISSUE_TEMPLATE").mkdir(parents=True)
    return tmp_path


def run(root, answers, typed=None):
    options = [word for pair in answers.items() for word in pair]
    return CliRunner().invoke(main, [*options, "--root", str(root)], input=typed)


def written(root):
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_each_file_names_the_owner_and_a_second_run_changes_nothing(copy):
    assert run(copy, ANSWERS).exit_code == 0
    files = written(copy)
    chart = yaml.safe_load(files["charts/kube-rdma/Chart.yaml"])
    form = yaml.safe_load(files[".github/ISSUE_TEMPLATE/config.yml"])
    assert files[".github/CODEOWNERS"].endswith("* @acme/rdma\n")
    assert chart["home"] == "https://forge.example/acme/kube-rdma"
    assert chart["maintainers"] == [{"name": "acme/rdma", "email": "rdma@acme.example"}]
    assert form["contact_links"][0]["url"].startswith(chart["home"])
    for page in ("SECURITY.md", "SUPPORT.md", "CODE_OF_CONDUCT.md"):
        assert "<rdma@acme.example>" in files[page]
        links = re.findall(r"\]\((?!https:)([^)#]+)", files[page])
        assert [name for name in links if not (ROOT / name).exists()] == []
    assert run(copy, ANSWERS).output == "nothing to change\n"
    assert written(copy) == files


def test_another_owner_takes_the_place_of_the_first(copy):
    run(copy, ANSWERS)
    first = written(copy)
    jane = {"--owner": "jane", "--repository": "https://forge.example/jane/rdma", "--mail": "j@e.x"}
    assert set(run(copy, jane).output.splitlines()) == first.keys()
    files = written(copy)
    assert files.keys() == first.keys()
    assert not [name for name, text in files.items() if "acme" in text]
    run(copy, ANSWERS)
    assert written(copy) == first


def test_it_asks_for_what_no_option_says(copy):
    result = run(copy, {"--owner": "jane"}, "https://forge.example/jane/rdma\nj@e.example\n")
    assert result.exit_code == 0
    assert "Address of the repository: " in result.output
    assert "* @jane" in written(copy)[".github/CODEOWNERS"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--owner", "jane doe"),
        ("--owner", "a/b/c"),
        ("--repository", "http://forge.example/acme/kube-rdma"),
        ("--repository", "https://forge.example"),
        ("--repository", "https://forge.example/acme/kube-rdma\nx: y"),
        ("--mail", "jane"),
        ("--mail", "j@e.x> <script>"),
    ],
)
def test_an_answer_of_another_form_is_refused_and_nothing_written(copy, option, value):
    before = written(copy)
    result = run(copy, {**ANSWERS, option: value})
    assert isinstance(result.exception, Refused)
    assert result.exception.where == option
    assert written(copy) == before
