"""A unit test lies in the folder that its module has in src, and pytest looks into every folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import PurePath

import pytest

from .tree import ROOT, texts

# What a folder of tests/unit mirrors lies below one of these.
ORIGINS = (ROOT / "src/kube_rdma", ROOT / "src", ROOT)
# Objects of config and examples; documents of all capabilities that are refused.
OTHERS = frozenset(("manifests", "bad_input"))


def strays(names: Iterable[str]) -> Iterator[str]:
    """One sentence for each test below tests/unit whose folder mirrors none."""
    for name in names:
        folder = str(PurePath(name).parent.relative_to("tests/unit"))
        if folder not in OTHERS and not any((origin / folder).is_dir() for origin in ORIGINS):
            yield f"{name}: no folder {folder} is in src/kube_rdma, in src or at the top"


def overlooked(names: Iterable[str], patterns: Iterable[str]) -> Iterator[str]:
    """One sentence for each test below a folder that pytest does not enter."""
    masks = tuple(patterns)
    for name in names:
        for part in PurePath(name).parent.parts:
            if any(fnmatch(part, mask) for mask in masks):
                yield f"{name}: pytest enters no folder {part}"


def eclipsed(names: Iterable[str]) -> Iterator[str]:
    """One sentence for each test of a folder that is no package: a namesake may run instead."""
    for name in names:
        for folder in PurePath(name).parents[:-1]:
            if not (ROOT / folder / "__init__.py").is_file():
                yield f"{name}: {folder} has no __init__.py"


def listed(top: str) -> list[str]:
    """The files of tests below a folder."""
    return [name for name, _ in texts(top) if PurePath(name).match("test_*.py")]


def test_unit_tests_mirror_src() -> None:
    assert not list(strays(listed("tests/unit")))


def test_pytest_enters_every_folder(pytestconfig: pytest.Config) -> None:
    assert not list(overlooked(listed("tests"), pytestconfig.getini("norecursedirs")))


def test_every_folder_of_tests_is_a_package() -> None:
    assert not list(eclipsed(listed("tests")))


def test_a_folder_that_is_no_package_is_found() -> None:
    (sentence,) = eclipsed(["tests/house/gone/test_a.py"])
    assert sentence == "tests/house/gone/test_a.py: tests/house/gone has no __init__.py"


def test_a_planted_stray_is_found() -> None:
    names = ["tests/unit/pools/rules/test_a.py", "tests/unit/pools/gone/test_b.py"]
    (sentence,) = strays(names)
    assert sentence.startswith("tests/unit/pools/gone/test_b.py: no folder pools/gone ")


def test_a_folder_that_is_not_entered_is_found() -> None:
    names = ["tests/unit/kube_rdma_lab/build/test_go.py", "tests/lab/machines/test_ack.py"]
    (sentence,) = overlooked(names, ["build", ".*"])
    assert sentence == f"{names[0]}: pytest enters no folder build"
