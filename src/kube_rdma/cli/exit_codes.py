"""What a command's exit code means, the same for all of them: `main` and docs/exit-codes.md.

A command that found something ends with PROBLEM, one that could not see enough with UNKNOWN: what
was not seen is never taken for well. Errors have theirs by who has to act (kube_base/errors).
"""

from __future__ import annotations

from enum import IntEnum

from kube_base.errors import Broken, KubeError, Refused, Unavailable


class ExitCode(IntEnum):
    """Codes of all commands but `nccl-env`, which has those of the script that it runs."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    BROKEN = 5
    UNKNOWN = 6
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "It was done, and nothing is wrong.",
    ExitCode.PROBLEM: "It was done, and found a problem.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.REFUSED: "A file, an object or a right is not as it has to be; change that.",
    ExitCode.UNAVAILABLE: "Something does not answer, or the output cannot be written; try again "
    "later.",
    ExitCode.BROKEN: "The state contradicts its record; stop and look.",
    ExitCode.UNKNOWN: "Too little could be seen to rule out a problem.",
    ExitCode.INTERRUPTED: "It was interrupted.",
}
_OF_ERRORS: tuple[tuple[type[KubeError], ExitCode], ...] = (
    (Refused, ExitCode.REFUSED),
    (Unavailable, ExitCode.UNAVAILABLE),
    (Broken, ExitCode.BROKEN),
)


def exit_code(error: KubeError | OSError) -> ExitCode:
    """That of an error which ends a command."""
    kinds = (code for kind, code in _OF_ERRORS if isinstance(error, kind))
    return next(kinds, ExitCode.UNAVAILABLE)


def error_document(error: KubeError | OSError) -> dict[str, object]:
    """What `-o json` prints instead of a result; keys are added to, never renamed."""
    made: dict[str, object] = {"message": sentence(error), "exitCode": int(exit_code(error))}
    if isinstance(error, Refused):
        made |= {"problem": error.problem, "remedy": error.remedy, "where": error.where}
    return {"error": made}


def sentence(error: KubeError | OSError) -> str:
    """What a person reads; of the system's errors the file and its reason."""
    if isinstance(error, KubeError):
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or type(error).__name__}."
