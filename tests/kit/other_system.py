"""A Python process on which kube-rdma's own code finds nothing of Linux: as on macOS, or Windows.

What a module of Python has on which system is read from typeshed's stubs, which come with mypy. Own
code that asks for a name or module which the system does not have gets the error that it would get
there. Nobody may open what lies in /proc, /sys and the like, reach a network or start a program.
Whether packages of others run on a system is theirs to say; they are let through.

    python -m tests.kit.other_system SYSTEM MODULE [ARGUMENT...]     calls MODULE.main()
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

SYSTEMS = ("darwin", "win32")
OWN = "kube_"  # how the names of this repository's packages begin
# Not all of /dev: tests write to /dev/shm.
FOLDERS = (
    *("/proc", "/sys", "/run", "/var/run", "/var/lib", "/etc/kubernetes", "/etc/cni", "/host"),
    *("/dev/infiniband", "/dev/net", "/dev/vfio"),
)
NETLINK = "kube_rdma.adapters.kernel.netlink"
_OPENING = ("open", "os.listdir", "os.scandir", "os.chdir", "os.mkdir", "os.rename")
_OUTSIDE = ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.system")
_LOOKS = ("stat", "lstat", "readlink", "access")  # without an event of their own


@cache
def absent(module: str, system: str) -> frozenset[str]:
    """The names that a module of Python has on Linux and not on this system."""
    return frozenset(_names(module, "linux")) - frozenset(_names(module, system))


@cache
def is_absent(module: str, system: str) -> bool:
    """Whether the system has no such module of Python: then no name of it is left."""
    names = {name for name in _names(module, "linux") if not name.startswith("_")}
    return bool(names) and names <= absent(module, system)


@cache
def _names(module: str, system: str) -> frozenset[str]:
    stub = _stub(module)
    if stub is None:
        return frozenset()
    return frozenset(_bound(ast.parse(stub.read_text(encoding="utf-8")).body, system))


def _stub(module: str) -> Path | None:
    spec = find_spec("mypy")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent.joinpath("typeshed/stdlib", *module.split("."))
    places = (path.with_suffix(".pyi"), path / "__init__.pyi")
    return next((place for place in places if place.is_file()), None)


def _bound(body: Sequence[ast.stmt], system: str) -> Iterator[str]:
    """The names that statements of a stub bind on a system."""
    for statement in body:
        match statement:
            case ast.If(test=test, body=then, orelse=otherwise):
                yield from _bound(then if _holds(test, system) else otherwise, system)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=names):
                yield from (one.asname for one in names if one.asname)


def _holds(test: ast.expr, system: str) -> bool:
    """What a condition on the system and on the version of Python comes to."""
    known = SimpleNamespace(platform=system, version_info=sys.version_info)
    code = compile(ast.Expression(test), "<stub>", "eval")
    return bool(eval(code, {"sys": known, "TYPE_CHECKING": True, "__builtins__": {}}))  # noqa: S307


class ForeignModule(ModuleType):
    """A module of Python as another system has it."""

    def __init__(self, real: ModuleType, system: str) -> None:
        super().__init__(real.__name__)
        self.__dict__["_real"] = real
        self.__dict__["_absent"] = absent(real.__name__, system)

    def __getattr__(self, name: str) -> object:
        if name in self._absent:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._real, name)


def become(system: str) -> None:
    """Make this process such a one, for good."""
    real_import = builtins.__import__

    def foreign_import(
        name: str,
        names: dict[str, object] | None = None,
        local: dict[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        asker = str((names or {}).get("__name__", ""))
        module = real_import(name, names, local, fromlist, level)
        if not asker.startswith(OWN):
            return module
        if is_absent(name, system) or f"{name}.".startswith(f"{NETLINK}."):
            raise ModuleNotFoundError(f"No module named {name!r} on {system}, asked for by {asker}")
        if missing := absent(name, system).intersection(fromlist or ()):
            raise ImportError(f"cannot import {sorted(missing)} from {name!r} on {system}")
        return ForeignModule(module, system) if absent(module.__name__, system) else module

    builtins.__import__ = foreign_import
    for name in _LOOKS:
        setattr(os, name, _looking(name))
    sys.addaudithook(_refuse)


def _looking(name: str) -> object:
    real = getattr(os, name)

    def look(path: object, *rest: object, **named: object) -> object:
        _refuse_path(path)
        return real(path, *rest, **named)

    return look


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _OPENING:
        _refuse_path(arguments[0])
    elif event in _OUTSIDE:
        raise SystemExit(f"{event} {arguments}: nothing outside of this process may be asked")


def _refuse_path(path: object) -> None:
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if any(f"{text}/".startswith(f"{folder}/") for folder in FOLDERS) and text != os.devnull:
        raise SystemExit(f"{text} is a place of Linux alone")


def run(system: str, module: str, arguments: Sequence[str]) -> None:
    """Call main() of a module of kube-rdma on such a system."""
    become(system)
    sys.argv[:] = [module, *arguments]
    importlib.import_module(module).main()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
