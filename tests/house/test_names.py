"""A class name has one meaning, prose names files that exist, addresses are the project's."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from .tree import ROOT, is_generated, statements, texts

SOURCES = (
    *("kube_base", "kube_client", "kube_rdma", "kube_rdma_selftest"),
    *("kube_rdma_whereabouts", "kube_rdma_lab", "kube_rdma_testing", "kube_rdma_tools"),
)
PACKAGES = (*(f"src/{name}" for name in SOURCES), "bench", "chaos")
# Files of the container runtime, the kernel and others, which prose may name.
FOREIGN = frozenset(("setup.py",))
# ``pools/rules/absence.py``, ``netlink/codec.py``, ``pace.py``.
REFERENCE = re.compile(r"(?<![\w./-])((?:\w+/)*\w+\.py)\b")
# ``pools/rules/absence``: without its ending only below a capability, for other words with
# a slash are no files.
CAPABILITIES = sorted(path.parent.name for path in (ROOT / "src/kube_rdma").glob("*/__init__.py"))
MODULE = re.compile(rf"(?<![\w./-])((?:{'|'.join(CAPABILITIES)})(?:/\w+)+)(?![\w/]|\.\w)")
# kube-rdma.io is a group of the API. The project has no site, mailbox, image or module of the name.
ADDRESS = re.compile(
    r"(?://|@)[\w.-]*kube-rdma\.io\b"
    r"|kube-rdma\.io(?:/[\w.-]+)+[:@](?!No(?:Schedule|Execute))\w"
    r"|(?:image|repository|module)\S*\s*[\"']?kube-rdma\.io\b"
    r"|(?:github|gitlab|ghcr|quay|docker|pypi)\.\w+/[\w./-]*kube-rdma\b"
)


def modules(*tops: str) -> list[tuple[str, str]]:
    """Name and text of every Python file that people wrote."""
    return [(n, t) for n, t in texts(*tops) if n.endswith(".py") and not is_generated(n)]


def twins(files: Iterable[tuple[str, str]]) -> Iterator[str]:
    """One sentence for each class name that stands in more than one file."""
    places = defaultdict(list)
    for name, text in files:
        for node in statements(ast.parse(text)) if "class " in text else ():
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    for word, names in sorted(places.items()):
        if len(names) > 1:
            yield f"{word}: {', '.join(names)}"


def endings(paths: Iterable[str]) -> frozenset[str]:
    """Every way to name the files: by their last parts; of a capability by module or folder."""
    parts = [PurePath(path).parts for path in paths]
    words = {"/".join(names[i:]) for names in parts for i in range(len(names))}
    for name in CAPABILITIES:
        modules = [word.removesuffix(".py") for word in words if word.startswith(f"{name}/")]
        words.update(str(folder) for word in modules for folder in (word, *PurePath(word).parents))
    return frozenset(words)


def stale(name: str, text: str, names: frozenset[str]) -> Iterator[str]:
    """One sentence for each file that a docstring or comment names and that is not there."""
    if all(word in names for word in _named(text)):
        return  # whatever of it is prose
    tree = ast.parse(text)
    prose = [ast.get_docstring(n, clean=False) or "" for n in ast.walk(tree) if _documented(n)]
    prose += [line.partition("# ")[2] for line in text.splitlines() if "# " in line]
    for word in (word for words in prose for word in _named(words)):
        if word not in names:
            yield f"{name}: {word}"


def _named(text: str) -> Iterator[str]:
    """The files and modules that a text names, but those of others."""
    for pattern in (REFERENCE, MODULE):
        yield from (match[1] for match in pattern.finditer(text) if match[1] not in FOREIGN)


def _documented(node: ast.AST) -> bool:
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)


def test_a_class_name_has_one_meaning() -> None:
    sentences = list(twins(modules("src")))
    assert not sentences, "\n" + "\n".join(sentences)


def test_prose_names_files_that_exist() -> None:
    tops = ("src", "tests", "bench", "chaos", "shim", "tools", "hatch_build.py")
    names = endings(name for name, _ in texts(*tops))
    sentences = [line for name, text in modules(*PACKAGES) for line in stale(name, text, names)]
    assert not sentences, "\n" + "\n".join(sentences)


def test_a_planted_twin_is_found() -> None:
    files = [("a.py", "class Plan: ..."), ("b.py", "class Plan: ...\nclass Other: ...")]
    assert list(twins(files)) == ["Plan: a.py, b.py"]


def test_a_planted_stale_reference_is_found() -> None:
    text = (
        '"""See pools/drive.py and pace.py."""\n'
        "x = 1  # as in tests/gone.py and model/gone, not in pools/rules/node_health or model/a.b\n"
    )
    names = endings(["src/kube_rdma_lab/pace.py", "src/kube_rdma/pools/rules/node_health.py"])
    missing = ["pools/drive.py", "tests/gone.py", "model/gone"]
    assert list(stale("x.py", text, names)) == [f"x.py: {word}" for word in missing]


def test_no_address_is_named_that_the_project_does_not_have() -> None:
    """Whoever has the domain, or an account of the project's name, could serve it to all users."""
    assert not [f"{n}: {found[0]}" for n, t in texts() for found in ADDRESS.finditer(t)]
    planted = (
        "https://kube-rdma.{0}/docs a@kube-rdma.{0} repository: kube-rdma.{0} "
        "docker.{0}/a/kube-rdma kube-rdma.{0}/lab/a:1"
    )
    assert len(ADDRESS.findall(planted.format("io"))) == 5
    assert not ADDRESS.search("kube-rdma.{0}/starting:NoSchedule crd/a.kube-rdma.{0}".format("io"))
