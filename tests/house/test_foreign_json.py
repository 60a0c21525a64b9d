"""JSON of others is read by kube_base/foreign_json alone: others fail in ways of their own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from types import FrameType

from kube_base import foreign_json
from kube_base.errors import KubeError
from tests.kit.foreign_files import FILE_PARSERS
from tests.kit.foreign_parsers import PARSERS, text_of
from tests.kit.foreign_texts import TEXT_PARSERS

from .tree import PRODUCT, ROOT, is_generated, texts

DECODER = "src/kube_base/foreign_json.py"
# What reads nothing but kube-rdma's own text, or text that the decoder has taken before.
OWN = {
    "src/kube_rdma/adapters/journal/journal.py": "records of kube-rdma, in a folder of root",
    "src/kube_rdma/lib/text/reader.py": "a text in quotes, which a pattern has found",
    "src/kube_rdma/lib/schema.py": "what json.dumps wrote a moment before",
    "src/kube_rdma/attach/rules/conflist.py": "places in a text that the decoder has taken",
    "src/kube_rdma/cli/output.py": "what json.dumps wrote a moment before",
    "src/kube_rdma/install/installation.py": "dashboards that come with kube-rdma",
    "src/kube_rdma/install/documents/assignments.py": "words of a command, up to a comma",
    "src/kube_rdma/install/views.py": "what json.dumps wrote a moment before",
}
# What calls the decoder, and no parser of the lists does.
UNTRIED = {
    "src/kube_client/kinds.py": "makes codecs, which wire.py calls",
    "src/kube_rdma/admission/rules/completions.py": "blocks that were read before",
    "src/kube_rdma/adapters/cluster/kinds/pod.py": "makes a codec, which wire.py calls",
    "src/kube_rdma/adapters/cluster/kinds/resource_api.py": "makes codecs, which wire.py calls",
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
        for name, text in texts(*PRODUCT)
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


def users() -> set[str]:
    """Files of the product that call the decoder, or give it to somebody who does."""
    return {
        name
        for name, text in texts(*PRODUCT)
        if name.endswith(".py") and name != DECODER and "foreign_json import" in text
        if any(word in text for word in ("decoded(", "decoded_json(", "partial(decoded"))
    }


def tried() -> set[str]:
    """Files of the product from which, or from whose codec, parsers of the lists call it."""
    found: set[str] = set()
    code = foreign_json.decoded.__code__

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code and frame.f_back:
            found.add(frame.f_back.f_code.co_filename.removeprefix(f"{ROOT}/"))

    for document, parse in (PARSERS | TEXT_PARSERS | FILE_PARSERS).values():
        data = text_of(document)
        sys.setprofile(note)
        try:
            with suppress(KubeError):
                parse(data)
        finally:
            sys.setprofile(None)
    return found


def test_each_reader_is_in_the_lists_of_parsers() -> None:
    """A new one gets a line there, and so its broken documents (unit/test_foreign_parsers.py)."""
    untried = users() - tried()
    assert untried == UNTRIED.keys()
