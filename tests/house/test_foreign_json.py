"""JSON of others is read by model/foreign_json alone: other decoders fail in ways of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from .tree import is_generated, texts

DECODER = "src/kube_rdma/model/foreign_json.py"
# What reads nothing but kube-rdma's own text, or text that the decoder has taken before.
OWN = {
    "src/kube_rdma/adapters/journal/glance.py": "records of kube-rdma, in a folder of root",
    "src/kube_rdma/adapters/journal/journal.py": "records of kube-rdma, in a folder of root",
    "src/kube_rdma/api/document.py": "a text in quotes, which a pattern has found",
    "src/kube_rdma/api/structural.py": "what json.dumps wrote a moment before",
    "src/kube_rdma/rules/cni_conf/edit.py": "places in a text that the decoder has taken",
    "src/kube_rdma/views/manifests.py": "what json.dumps wrote a moment before",
}
_DECODERS = {
    "json": {"load", "loads", "JSONDecoder"},
    "msgspec.json": {"decode", "Decoder"},
    "msgspec.yaml": {"decode"},
    "orjson": {"loads"},
}


def decoders(tree: ast.AST) -> Iterator[int]:
    """Lines that name a decoder of a library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _DECODERS.get(
            ast.unparse(node.value), ()
        ):
            yield node.lineno
        if isinstance(node, ast.ImportFrom):
            names = _DECODERS.get(node.module or "", set())
            yield from (node.lineno for alias in node.names if alias.name in names)


@cache
def bare() -> dict[str, list[int]]:
    """Such lines of the product, by file."""
    found = {
        name: list(decoders(ast.parse(text)))
        for name, text in texts("src/kube_rdma")
        if name.endswith(".py")
        and not is_generated(name)
        and any(word in text for word in ("json", "yaml"))
        and name != DECODER
    }
    return {name: lines for name, lines in found.items() if lines}


def test_one_decoder_reads_what_others_wrote() -> None:
    """A file that has to use another one says why in OWN."""
    assert not {name: lines for name, lines in bare().items() if name not in OWN}


def test_each_exception_is_one() -> None:
    """A file that no longer decodes by itself leaves the list."""
    assert bare().keys() == OWN.keys()


def test_planted_faults_are_found() -> None:
    """Calls, classes and imports by name."""
    for planted in (
        "json.loads(text)",
        "msgspec.json.decode(data, type=T)",
        "D = msgspec.json.Decoder(T)",
        "from json import loads",
        "json.JSONDecoder()",
    ):
        assert list(decoders(ast.parse(planted))), planted
    assert not list(decoders(ast.parse("data.decode(); json.dumps(x); msgspec.json.encode(x)")))
