"""Advisories against locked versions, from a source that answers as OSV and the index do."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from click.testing import CliRunner

from kube_rdma_tools.advisories import GO, PYTHON, LockedPackage, main, packages
from tests.kit.http_servers import http_server

LOCK = """\
anyio==4.1.0 \\
    --hash=sha256:00
cffi==2.1.1 ; platform_python_implementation != 'PyPy' \\
    --hash=sha256:01
"""
MODULE = """\
module example.org/lab

go 1.26.0

require example.org/single v1.0.0

require (
	github.com/beorn7/perks v1.0.1 // indirect
	go.etcd.io/etcd/v3 v3.6.8
)
"""
BAD = {("anyio", "4.1.0"): "PYSEC-1", ("go.etcd.io/etcd/v3", "3.6.8"): "GO-2026-1"}


class Source(BaseHTTPRequestHandler):
    """OSV, and an index that has the page of anyio's version and of cffi's newest alone."""

    def do_POST(self):
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self.answer(self.server.results(queries))

    def do_GET(self):
        pages = {
            "/pypi/anyio/4.1.0/json": {
                "info": {"version": "4.1.0"},
                "vulnerabilities": [
                    {"id": "PYSEC-1", "fixed_in": ["4.4.0"], "withdrawn": None},
                    {"id": "PYSEC-0", "fixed_in": [], "withdrawn": "2026-01-01T00:00:00Z"},
                ],
            },
            "/pypi/cffi/json": {"info": {"version": self.server.newest}, "vulnerabilities": []},
        }
        self.answer(pages.get(self.path))

    def answer(self, document):
        self.send_response(404 if document is None else self.server.code)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_):
        """Nobody reads it."""


def judged(queries):
    """What OSV answers if every list of advisories is one page."""
    keys = [(one["package"]["name"], one["version"]) for one in queries]
    return {"results": [{"vulns": [{"id": BAD[key]}]} if key in BAD else {} for key in keys]}


@contextmanager
def source(code=200, newest="2.1.1", results=judged):
    with http_server(Source) as server:
        server.code, server.newest, server.results = code, newest, results
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def files(tmp_path):
    lock, module = tmp_path / "runtime.txt", tmp_path / "go.mod"
    lock.write_text(LOCK)
    module.write_text(MODULE)
    return [str(lock), str(module)]


def audited(*words):
    result = CliRunner().invoke(main, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_locks_and_modules_name_their_versions(files, tmp_path):
    lock, module = (sorted(packages(tmp_path / name)) for name in ("runtime.txt", "go.mod"))
    assert [one.version for one in lock] == ["4.1.0", "2.1.1"]
    assert {one.ecosystem for one in lock} == {PYTHON}
    assert module[0] == LockedPackage(files[1], GO, "example.org/single", "1.0.0")
    names = {one.name for one in module}
    assert names == {"example.org/single", "github.com/beorn7/perks", "go.etcd.io/etcd/v3"}


def test_each_advisory_is_a_line_with_its_file_and_the_code_is_1(files):
    with source() as address:
        code, printed, _ = audited(*files, "--osv", address)
    assert code == 1
    assert printed.splitlines() == [
        f"{files[1]}: go.etcd.io/etcd/v3 3.6.8: GO-2026-1",
        f"{files[0]}: anyio 4.1.0: PYSEC-1",
        "2 advisories against 5 of 5 packages.",
    ]


def paged(queries):
    """What OSV answers if anyio has three pages: each token is the number of the next one."""
    results = [
        {"vulns": [{"id": f"PYSEC-{one['page_token'] or 0}"}]}
        if one["package"]["name"] == "anyio"
        else {}
        for one in queries
    ]
    for one, result in zip(queries, results, strict=True):
        if result and one["page_token"] != "2":
            result["next_page_token"] = str(int(one["page_token"] or 0) + 1)
    return {"results": results}


def test_every_page_of_a_package_is_asked_for(files):
    with source(results=paged) as address:
        code, printed, _ = audited(*files, "--osv", address)
    assert code == 1
    assert printed.splitlines() == [
        *(f"{files[0]}: anyio 4.1.0: PYSEC-{number}" for number in range(3)),
        "3 advisories against 5 of 5 packages.",
    ]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "left packages out"),
        ({"results": None}, "left packages out"),
        ({"results": [{}]}, "left packages out"),
        ({"results": [{"next_page_token": "x"}] * 2}, "answered with ever more pages"),
    ],
    ids=["no results", "null", "too few", "no last page"],
)
def test_an_answer_of_osv_that_judges_not_all_is_one_sentence(files, document, said):
    with source(results=lambda _: document) as address:
        code, printed, errors = audited(files[0], "--osv", address)
    assert (code, printed) == (2, "")
    assert errors == f"{address}/v1/querybatch {said}, so nothing was judged\n"


def test_the_index_answers_for_python_and_what_it_does_not_judge_is_named(files):
    """A withdrawn advisory is none; the newest version's page is that version's."""
    with source() as address:
        code, printed, errors = audited(*files, "--index", address)
    assert code == 1
    assert f"{files[0]}: anyio 4.1.0: PYSEC-1, fixed in 4.4.0" in printed
    assert "against 2 of 5 packages" in printed
    assert errors.startswith("Not judged: example.org/single 1.0.0, ")


def test_a_version_of_which_nobody_answers_is_no_clean_one(files):
    with source(newest="2.2.0") as address:
        code, _, errors = audited(files[0], "--index", address)
    assert (code, errors) == (1, "Not judged: cffi 2.1.1.\n")


@pytest.mark.parametrize("option", ["--osv", "--index"])
def test_a_source_that_gives_no_answer_is_one_sentence(files, option):
    with source() as address:
        pass
    code, printed, errors = audited(*files, option, address)
    assert (code, printed) == (2, "")
    assert "gave no answer" in errors
    assert len(errors.splitlines()) == 1
    with source(code=500) as address:
        code, _, errors = audited(*files, option, address)
    assert code == 2
    assert "answered 500, so nothing was judged" in errors


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    code, _, errors = audited(str(tmp_path / "absent"))
    assert code == 2
    assert len(errors.splitlines()) == 1
