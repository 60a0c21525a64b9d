"""Names say what a value is, a class name has one meaning, and prose names files that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from .tree import is_generated, statements, texts

# Words that say nothing of what a value is. In a comprehension SHORT ones are at home.
BANNED = frozenset(("found", "known", "said", "there", "told", "one", "each"))
SHORT = frozenset(("one", "each"))
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
SOURCES = (
    *("kube_base", "kube_client", "kube_rdma", "kube_rdma_selftest"),
    *("kube_rdma_whereabouts", "kube_rdma_lab", "kube_rdma_testing", "kube_rdma_tools"),
)
PACKAGES = (*(f"src/{name}" for name in SOURCES), "bench", "chaos")
# Files of the container runtime, the kernel and others, which prose may name.
FOREIGN = frozenset(("setup.py",))
# ``rules/health/damping.py``, ``netlink/codec.py``, ``pace.py``.
REFERENCE = re.compile(r"(?<![\w./-])((?:\w+/)*\w+\.py)\b")
# ``rules/health/damping``: without its ending only below a floor, for words with a slash are none.
FLOORS = "model", "api", "rules", "views", "adapters", "programs"
MODULE = re.compile(rf"(?<![\w./-])((?:{'|'.join(FLOORS)})(?:/\w+)+)(?![\w/]|\.\w)")


def modules(*tops: str) -> list[tuple[str, str]]:
    """Name and text of every Python file that people wrote."""
    return [(n, t) for n, t in texts(*tops) if n.endswith(".py") and not is_generated(n)]


def banned(name: str, text: str) -> Iterator[str]:
    """One sentence for each binding of a banned name."""
    yield from _banned(name, ast.parse(text), inside=False)


def _banned(name: str, node: ast.AST, *, inside: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        for word in _bound(child):
            bare = word.lstrip("_")
            if bare in BANNED and not (inside and bare in SHORT):
                yield f"{name}:{child.lineno}: {word}"  # type: ignore[attr-defined]
        yield from _banned(name, child, inside=inside or isinstance(child, COMPREHENSIONS))


def _bound(node: ast.AST) -> Iterator[str]:
    """The name that a node binds, if it does."""
    match node:
        case ast.Name(id=word, ctx=ast.Store()) | ast.Attribute(attr=word, ctx=ast.Store()):
            yield word
        case ast.arg(arg=word) | ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
            yield word
        case ast.MatchAs(name=str(word)) | ast.MatchStar(name=str(word)):
            yield word


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
    """Every way to name the files: by their last parts, and below a floor by module or folder."""
    parts = [PurePath(path).parts for path in paths]
    words = {"/".join(names[i:]) for names in parts for i in range(len(names))}
    for floor in FLOORS:
        modules = [word.removesuffix(".py") for word in words if word.startswith(f"{floor}/")]
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


def test_names_say_what_a_value_is() -> None:
    sentences = [line for name, text in modules(*PACKAGES) for line in banned(name, text)]
    assert not sentences, "\n" + "\n".join(sentences)


def test_a_class_name_has_one_meaning() -> None:
    sentences = list(twins(modules("src")))
    assert not sentences, "\n" + "\n".join(sentences)


def test_prose_names_files_that_exist() -> None:
    tops = ("src", "tests", "bench", "chaos", "shim", "tools", "hatch_build.py")
    names = endings(name for name, _ in texts(*tops))
    sentences = [line for name, text in modules(*PACKAGES) for line in stale(name, text, names)]
    assert not sentences, "\n" + "\n".join(sentences)


def test_a_planted_name_is_found() -> None:
    text = "def f(told):\n    found = [one for one in told]\n    self._said = 1\n"
    assert list(banned("x.py", text)) == ["x.py:1: told", "x.py:2: found", "x.py:3: _said"]


def test_a_planted_twin_is_found() -> None:
    files = [("a.py", "class Plan: ..."), ("b.py", "class Plan: ...\nclass Other: ...")]
    assert list(twins(files)) == ["Plan: a.py, b.py"]


def test_a_planted_stale_reference_is_found() -> None:
    text = (
        '"""See rules/drive.py and pace.py."""\n'
        "x = 1  # as in tests/gone.py and model/gone, not in rules/health or model/a.b\n"
    )
    names = endings(["src/kube_rdma_lab/pace.py", "src/kube_rdma/rules/health/evaluate.py"])
    missing = ["rules/drive.py", "tests/gone.py", "model/gone"]
    assert list(stale("x.py", text, names)) == [f"x.py: {word}" for word in missing]
