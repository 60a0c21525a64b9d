"""The scripts of docs/command-line.md in real shells: what bash, zsh and fish offer by Tab.

Each shell is set up as the page says, in a new home, and keys are typed on its terminal. `make
test-all` fetches the shells from Debian.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler

import pytest

from tests.kit import shells
from tests.kit.http_servers import http_server

from .pages import ROOT

pytestmark = pytest.mark.slow  # three shells of Debian are installed, and each asks Python often

PAGE = ROOT / "docs/command-line.md"
ROW = re.compile(
    r"^\| (?P<shell>bash|zsh|fish)\b[^|]*\| `(?P<once>[^`|]+)` \| (?P<start>.*) \|$", re.MULTILINE
)
FILE = re.compile(r"`~/(?P<file>\.\w+)`.*: `(?P<line>\. [^`]+)`")
BEFORE = {"zsh": "autoload -Uz compinit && compinit\n"}  # what the page asks of ~/.zshrc
NODES = ("gpu-1", "node-9", "node-10")
TAB, TO_BEGIN, ERASE, ENTER = "\t", "\x01", "\x15", "\r"
TRIES = 20  # a cluster that takes longer than three seconds offers nothing
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "http://ADDRESS"}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
"""


def nodes_document():
    """What an API server answers who lists its nodes."""
    items = [{"metadata": {"name": name, "uid": name}, "spec": {}} for name in NODES]
    head = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
    return json.dumps({**head, "items": items}).encode()


class Handler(BaseHTTPRequestHandler):
    """An API server that has nodes and nothing else."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """List the nodes."""
        has = self.path.partition("?")[0] == "/api/v1/nodes"
        body = nodes_document() if has else b"{}"
        self.send_response(200 if has else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


def rows():
    """What the page says for each shell: the command of once, and the end of its row."""
    return {row["shell"]: (row["once"], row["start"]) for row in ROW.finditer(PAGE.read_text())}


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def terminal(request, tmp_path_factory):
    """A shell that was set up as the page says."""
    home = tmp_path_factory.mktemp(request.param)
    once, start = rows()[request.param]
    with http_server(Handler) as server, shells.opened(home) as opened:
        (home / "kubeconfig").write_text(
            KUBECONFIG.replace("ADDRESS", f"127.0.0.1:{server.server_port}")
        )
        opened.run(request.param, "-c", once)
        if read := FILE.search(start):
            (home / read["file"]).write_text(f"{BEFORE.get(request.param, '')}{read['line']}\n")
        with opened.terminal(request.param, "-i") as shown:
            shown.type(f"printf 'the %s ' shell reads{ENTER}")
            shown.until("the shell the reads")
            yield shown


def completed(terminal, line):
    """The words of a line after Tab was pressed at its end."""
    for _ in range(TRIES):
        terminal.type(f"{line}{TAB}{TO_BEGIN}printf '<%s>' {ENTER}printf '%s:' end of line{ENTER}")
        words = re.findall(r"<([^<>%]+)>", terminal.until("end:of:line:"))
        if words != line.split():
            break
    return words


def test_the_page_has_a_row_for_each_shell():
    assert [*rows()] == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("kube-rdma stat", "status"),
        ("kube-rdma verify nod", "nodes"),
        ("kube-rdma render --preset rd", "rdma-ib"),
        ("kube-rdma status --problems", "--problems-only"),
        ("kube-rdma verify nodes gp", "gpu-1"),
        ("kube-rdma doctor node/gp", "node/gpu-1"),
    ],
)
def test_tab_writes_the_only_word_that_fits(terminal, line, word):
    assert completed(terminal, line) == [*line.split()[:-1], word]


def test_tab_lists_the_words_where_several_fit(terminal):
    for _ in range(TRIES):
        line = f"kube-rdma verify nodes node-{TAB}{TAB}"
        terminal.type(f"{line}{ERASE}printf '%s:' end of line{ENTER}")
        if {"node-9", "node-10"} <= set(re.findall(r"node-\d+", terminal.until("end:of:line:"))):
            return
    pytest.fail(f"no list came: {terminal.text}")
