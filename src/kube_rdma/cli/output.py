"""Prints for commands: formats, terminal or pipe, progress, and exit codes.

On a terminal cli/terminal folds and colours a page; a pipe or a file gets plain characters.
FORCE_COLOR makes a pipe count as a terminal, NO_COLOR takes the colour away (no-color.org,
force-color.org).

A result whose file cannot be written, as on a full disk, goes to another place, and a sentence says
where.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from enum import IntEnum
from pathlib import Path
from threading import Lock, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import click

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.plain_text import plain

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

    from kube_rdma.lib.page import Page

PAGE_WIDTH, PAGE_HEIGHT = 100, 24  # where the output is not a terminal
DOCUMENTS = ("json", "yaml")
META = "kube_rdma.output"  # in the context of a command: the format that was asked for

Command = TypeVar("Command", bound=Callable[..., Any])


def remember_output(context: click.Context, _: click.Parameter, value: str) -> str:
    """Store the output format in the context: errors are printed in it too."""
    context.meta.setdefault(META, value)
    return value


def remember_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Store that --json was given, which goes before the default of -o."""
    if value:
        context.meta[META] = "json"
    return value


def output_option(formats: Sequence[str], purpose: str) -> Callable[[Command], Command]:
    """Return the option -o of a command; the first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        callback=remember_output,
        is_eager=True,  # before an option that is refused
        help=purpose,
    )


OUTPUT = output_option(("table", "json"), "Output format: table for people, json for programs.")
LIST_FORMATS = ("table", "wide", "name", *DOCUMENTS)
LIST_HELP = (
    "Output format: table for people, wide for a table that nothing is cut or folded in, name for "
    "names alone, json or yaml for programs."
)
LIST_OUTPUT = output_option(LIST_FORMATS, LIST_HELP)
TEXT_OUTPUT = output_option(("text", "json"), "Output format: text for people, json for programs.")
AS_JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=remember_json,
    is_eager=True,
    help="Print JSON, the same as -o json.",
)
HOME = "\x1b[H\x1b[J"  # to the top left of a terminal, and clear what is below


def is_terminal() -> bool:
    """Decide whether stdout is a terminal; it may be closed."""
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def for_people() -> bool:
    """Decide whether pages get their form for a terminal: on one, or with FORCE_COLOR."""
    return is_terminal() or bool(os.environ.get("FORCE_COLOR"))


def in_colour() -> bool:
    """Decide whether states are coloured on pages for people."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or os.environ.get("TERM", "dumb") != "dumb"


def show(page: Page, *, wide: bool = False, before: str = "", err: bool = False) -> None:
    """Print a page, with `before` ahead of it; `wide` keeps tables at their full width."""
    colour = None if err else for_people() or None
    click.echo(before + written(page, wide=wide), err=err, color=colour)


def written(page: Page, *, wide: bool = False) -> str:
    """Return the text of a page, in the form for a terminal or for a pipe."""
    from kube_rdma.lib.page import page_text, widened

    page = widened(page) if wide else page
    if not for_people():
        return page_text(page, page_width())
    from kube_rdma.cli.terminal import rendered

    return rendered(page, page_width(), colour=in_colour())


def show_sentence(text: str, *, before: str = "") -> None:
    """Print sentences, one a line, with `before` ahead of them; fold them on a terminal."""
    from kube_rdma.lib.page import Sentence

    show((tuple(Sentence(line, "  ", loose=True) for line in text.split("\n")),), before=before)


def show_document(document: object, output: str) -> None:
    """Print a document in the format of `-o json` or `-o yaml`."""
    click.echo(document_text(document, output), nl=output == "json")


def show_result(page: Page, document: object, output: str) -> None:
    """Print a result as the page, or as the document with `-o json`."""
    if output == "json":
        show_document(document, output)
    else:
        show(page)


def tell(sentence: str) -> None:
    """Print a sentence to standard error."""
    click.echo(plain(sentence), err=True)


def show_names(names: Iterable[str]) -> None:
    """Print one name a line, as for `-o name`."""
    for name in names:
        click.echo(plain(name))


def document_text(document: object, output: str) -> str:
    """Return a document as JSON or YAML, in printable characters; YAML ends with a line end."""
    if output == "json":
        return json.dumps(document, indent=2).replace("\x7f", "\\u007f")  # all else it escapes
    import yaml

    plain_values = json.loads(json.dumps(document))  # YAML takes no subclasses of str
    is_printable = json.dumps(document, ensure_ascii=False).isprintable()
    return str(yaml.safe_dump(plain_values, sort_keys=False, allow_unicode=is_printable))


def page_size() -> tuple[int, int]:
    """Return the number of columns and lines of a page: the terminal's, else defaults."""
    if not is_terminal():
        return PAGE_WIDTH, PAGE_HEIGHT
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.columns or PAGE_WIDTH, size.lines or PAGE_HEIGHT


def page_width() -> int:
    """Return the number of columns of a page."""
    return page_size()[0]


def writable(file: Path) -> Path:
    """Open the file for writing and return it, made if new; raise OSError if that fails."""
    with file.open("a"):
        return file


def keep(text: str, file: Path | None = None) -> None:
    """Print a result, or write it to `file`; if that fails, save it to a new file and say so.

    Raise the OSError afterwards.
    """
    try:
        if file is not None:
            file.write_text("\n".join(map(plain, text.split("\n"))))  # a picture has no colours
        else:
            _print(text)
    except OSError as error:
        kept = _elsewhere(text)
        words = f"The result is kept in {kept}." if kept else "No place was left for the result."
        click.echo(f"kube-rdma: {words}", err=True)
        raise OSError(error.errno, error.strerror, str(file or "stdout")) from error


def _print(text: str) -> None:
    """Print a text; raise OSError if stdout is closed, where click would lose the text."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "the output is closed", "stdout")
    click.echo(text, color=for_people() or None)


def _elsewhere(text: str) -> Path | None:
    """Write a text to a new file in the first writable folder.

    Return its path, None without one.
    """
    import tempfile  # hardly ever

    for folder in (Path.cwd(), Path(tempfile.gettempdir()), Path.home()):
        try:
            number, name = tempfile.mkstemp(prefix="kube-rdma-", suffix=".txt", dir=folder)
            with os.fdopen(number, "w") as rescue:
                rescue.write(click.unstyle(text))
        except OSError:
            continue
        return Path(name)
    return None


# A line on stderr that says what a command waits for; only people at a terminal get it. It comes
# after two seconds, so that what is quick shows nothing, and vanishes at the end. Rich draws it,
# and is loaded when it comes.

AFTER_SECONDS = 2.0


def has_line() -> bool:
    """Decide whether stderr is a terminal that can show a line of progress."""
    is_terminal = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


def _timer(seconds: float, begin: Callable[[], None]) -> Timer:
    timer = Timer(seconds, begin)
    timer.daemon = True  # a command that ends early does not wait for it
    return timer


class ProgressLine:
    """A context that shows a line of progress on stderr; `tell` changes the text."""

    current: ClassVar[ProgressLine | None] = None

    def __init__(
        self,
        sentence: str,
        timer: Callable[[float, Callable[[], None]], Timer] = _timer,
        *,
        is_wanted: bool = True,
    ) -> None:
        self.is_shown = is_wanted and has_line()
        self.usual = self._sentence = sentence
        self._lock = Lock()
        self._live: Live | None = None
        self._is_over = False
        self._later = timer(AFTER_SECONDS, self._begin)

    def __enter__(self) -> Self:
        """Show the line once two seconds have passed."""
        if self.is_shown:
            self._later.start()
            ProgressLine.current = self
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Remove the line."""
        self._later.cancel()
        ProgressLine.current = None
        with self._lock:
            self._is_over = True
            if self._live is not None:
                self._live.stop()

    def tell(self, sentence: str) -> None:
        """Change the text of the line."""
        with self._lock:
            self._sentence = sentence
            if self._live is not None:
                self._live.update(_spinner(sentence), refresh=True)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._is_over:
                return
            console = Console(stderr=True, color_system=None)
            self._live = Live(
                _spinner(self._sentence),
                console=console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,  # what a command prints is no part of the line
                redirect_stderr=False,
            )
            self._live.start()
            console.show_cursor()  # a command that is killed leaves it as it was


def _spinner(sentence: str) -> Spinner:
    from rich.spinner import Spinner
    from rich.text import Text

    text = Text(plain(sentence), no_wrap=True, overflow="ellipsis")
    return Spinner("line", text)  # of ASCII alone


def take_logs() -> None:
    """Configure the log: the client's waits for the API server become sentences for people.

    All else goes to stderr. The log that an agent or controller has set up before stays.
    """
    import structlog

    if not structlog.is_configured():
        usual = structlog.get_config()["processors"]
        to_stderr = structlog.PrintLoggerFactory(sys.stderr)
        structlog.configure([_silence, *usual], logger_factory=to_stderr)


def _silence(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show the client's wait for the API server as a sentence; drop its events from the log."""
    from structlog import DropEvent

    line = ProgressLine.current
    if event["event"] == "API server awaited":
        why = f"The API server at {event['server']} has not answered for {event['seconds']} s."
        line.tell(why) if line else tell(f"kube-rdma: {why}")
    elif event["event"] != "API server answering":
        return event
    elif line:
        line.tell(line.usual)
    raise DropEvent


# The name of the program, and the examples that end a command's help.

HEADING = "Examples:"
_NAME, _PLUGIN = "kube-rdma", "kubectl-rdma"


def program() -> str:
    """Return the name of the command: `kubectl rdma` if it runs as kubectl's plugin."""
    return "kubectl rdma" if Path(sys.argv[0]).name == _PLUGIN else _NAME


def typed(line: str) -> str:
    """Return a command line of kube-rdma with the name under which it was started."""
    return line.replace(f"{_NAME} ", f"{program()} ")


def examples(*lines: str) -> str:
    """Return examples as a command's `epilog`.

    Its first line keeps click from joining the others.
    """
    return "\n".join(("\b", HEADING, *(f"  {typed(line)}" for line in lines)))


def command(*lines: str, name: str | None = None) -> Callable[[Command], click.Command]:
    """Return a decorator that makes a command, whose help ends with these examples."""
    return click.command(name, epilog=examples(*lines))


# Exit codes mean the same for all commands: `main` and docs/command-line.md.


class ExitCode(IntEnum):
    """The exit codes of all commands except `nccl-env`."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    BROKEN = 5
    UNKNOWN = 6
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "The command did its work, and nothing is wrong.",
    ExitCode.PROBLEM: "The command did its work, and found a problem.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.REFUSED: "A file, an object or a right is not as it has to be; change that.",
    ExitCode.UNAVAILABLE: "Something does not answer, or the output cannot be written; try again "
    "later.",
    ExitCode.BROKEN: "What is there contradicts a record of kube-rdma; stop and look.",
    ExitCode.UNKNOWN: "Too little could be seen to rule out a problem.",
    ExitCode.INTERRUPTED: "The command was interrupted.",
}
_OF_ERRORS: tuple[tuple[type[KubeError], ExitCode], ...] = (
    (Refused, ExitCode.REFUSED),
    (Unavailable, ExitCode.UNAVAILABLE),
    (Broken, ExitCode.BROKEN),
)


def exit_code(error: KubeError | OSError) -> ExitCode:
    """Return the exit code for an error that ends a command."""
    kinds = (code for kind, code in _OF_ERRORS if isinstance(error, kind))
    return next(kinds, ExitCode.UNAVAILABLE)


def error_document(error: KubeError | OSError) -> dict[str, object]:
    """Return the JSON document that `-o json` prints for an error.

    New keys may come, none is renamed.
    """
    made: dict[str, object] = {"message": sentence(error), "exitCode": int(exit_code(error))}
    if isinstance(error, Refused):
        made |= {"problem": error.problem, "remedy": error.remedy, "where": error.where}
    return {"error": made}


def lines(error: KubeError | OSError) -> str:
    """Return an error as text for people, one line for each fault."""
    each: Sequence[KubeError | OSError] = (error,)
    if isinstance(error, Refused):
        every = (error, *error.more)
        each = [Refused(one.problem, remedy=one.remedy, where=one.where) for one in every]
    return "\n".join(plain(sentence(one)) for one in each)


def sentence(error: KubeError | OSError) -> str:
    """Return an error as a sentence for people; of an OSError the file and the reason."""
    if isinstance(error, KubeError):
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or type(error).__name__}."
