"""Evidence of a check: a title, the commands with their output, and an honest verdict.

Between checks, which run commands through a Recorder, and pages, which show them. A check that
could not be made is "not run" with its reason; it counts neither for nor against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

from kube_base.frozen import Frozen


class CheckVerdict(StrEnum):
    """The verdict on a conformance check: met, not met, or not run."""

    MET = "met"
    NOT_MET = "not met"
    NOT_RUN = "not run"


class Unproven(Exception):
    """The error of a check that failed or could not run; `verdict` says which."""

    def __init__(self, verdict: CheckVerdict, why: str) -> None:
        self.verdict = verdict
        super().__init__(why)


class CommandOutcome(Frozen):
    """The output of a command to stdout and to stderr, and its exit code."""

    code: int
    text: str
    errors: str = ""

    @property
    def last(self) -> str:
        """Return the last line of stderr, or else of stdout, which may say why a command failed."""
        lines = f"{self.text}\n{self.errors}".strip().splitlines()
        return lines[-1] if lines else "it printed nothing"


class RecordedCommand(Frozen):
    """A command as people would type it, with its stdin and its outcome."""

    words: tuple[str, ...]
    stdin: str
    outcome: CommandOutcome


class ConformanceCheck(Frozen):
    """A check with its verdict; `sentence` says what was seen, or why it failed or did not run."""

    title: str
    verdict: CheckVerdict
    sentence: str
    commands: tuple[RecordedCommand, ...] = ()


class ConformanceItem(Frozen):
    """An item of the conformance programme: its id, the number of its KAR, and its checks."""

    id: str
    number: int
    title: str
    checks: tuple[ConformanceCheck, ...]

    @property
    def status(self) -> str:
        """Return the item's status in the programme's words, "" if no check ran.

        An item is "Implemented" only when all its checks are met.
        """
        verdicts = {check.verdict for check in self.checks}
        if verdicts == {CheckVerdict.NOT_RUN}:
            return ""
        if verdicts == {CheckVerdict.MET}:
            return "Implemented"
        return "Partially Implemented" if CheckVerdict.MET in verdicts else "Not Implemented"


Runner: TypeAlias = Callable[[Sequence[str], str], CommandOutcome]
"""Runs words with a text as stdin; a program that is missing has exit code 127, as in a shell."""


class Recorder:
    """A runner of commands that keeps each command with its outcome, in order."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._commands: list[RecordedCommand] = []

    @property
    def commands(self) -> tuple[RecordedCommand, ...]:
        """Return all commands that were run so far."""
        return tuple(self._commands)

    def tried(self, *words: str, stdin: str = "") -> CommandOutcome:
        """Run a command and return its outcome, whatever its exit code."""
        outcome = self._run(words, stdin)
        self._commands.append(RecordedCommand(words, stdin, outcome))
        return outcome

    def asked(self, *words: str, stdin: str = "") -> str:
        """Run a command and return its output; raise Unproven when it failed."""
        outcome = self.tried(*words, stdin=stdin)
        if outcome.code:
            what = f"`{' '.join(words[:4])} …` failed: {outcome.last}"
            raise Unproven(CheckVerdict.NOT_MET, what)
        return outcome.text


def examined(title: str, run: Runner, check: Callable[[Recorder], str]) -> ConformanceCheck:
    """Run one check and return it with its commands; its sentence is the result or the reason."""
    recorder = Recorder(run)
    try:
        verdict, sentence = CheckVerdict.MET, check(recorder)
    except Unproven as error:
        verdict, sentence = error.verdict, str(error)
    return ConformanceCheck(title, verdict, sentence, recorder.commands)
