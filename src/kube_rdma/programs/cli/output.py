"""How commands print: as wide as the terminal, and so that a full disk loses no result.

What was measured for half an hour is not measured again because its file could not be written: it
goes to another place then, and a sentence says where.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

PAGE_WIDTH, PAGE_HEIGHT = 100, 24  # where the output is not a terminal
META = "kube_rdma.output"  # in the context of a command: the format that was asked for

Command = TypeVar("Command", bound=Callable[..., Any])


def _asked(context: click.Context, _: click.Parameter, value: str) -> str:
    """Remember the format, for errors are told in it too."""
    context.meta[META] = value
    return value


def _output(usual: str) -> Callable[[Command], Command]:
    """The option -o of a command: `usual` for people, or JSON."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([usual, "json"]),
        default=usual,
        show_default=True,
        callback=_asked,
        help=f"Output format: {usual} for people, json for programs.",
    )


OUTPUT = _output("table")
TEXT_OUTPUT = _output("text")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, the same as -o json.")


def is_terminal() -> bool:
    """Whether a person reads it; stdout may be closed."""
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def page_size() -> tuple[int, int]:
    """Columns and lines of the page."""
    if not is_terminal():
        return PAGE_WIDTH, PAGE_HEIGHT
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.columns or PAGE_WIDTH, size.lines or PAGE_HEIGHT


def page_width() -> int:
    """Columns of the page."""
    return page_size()[0]


def writable(file: Path) -> Path:
    """A file that can be written, seen before the work begins; OSError when it cannot."""
    with file.open("a"):
        return file


def keep(text: str, file: Path | None = None) -> None:
    """Print a result, or write it to `file`; where that fails, to a new file, and say so.

    Raise OSError, after the result was saved elsewhere if there is a place.
    """
    try:
        if file is not None:
            file.write_text(text)
        else:
            _print(text)
    except OSError as error:
        kept = _elsewhere(text)
        words = f"The result is kept in {kept}." if kept else "No place was left for the result."
        click.echo(f"kube-rdma: {words}", err=True)
        raise OSError(error.errno, error.strerror, str(file or "stdout")) from error


def _print(text: str) -> None:
    """To stdout, which may be closed; click would lose it without a word."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "the output is closed", "stdout")
    click.echo(text)


def _elsewhere(text: str) -> Path | None:
    """A new file, in the first folder that takes it."""
    for folder in (Path.cwd(), Path(tempfile.gettempdir()), Path.home()):
        try:
            number, name = tempfile.mkstemp(prefix="kube-rdma-", suffix=".txt", dir=folder)
            with os.fdopen(number, "w") as rescue:
                rescue.write(text)
        except OSError:
            continue
        return Path(name)
    return None
