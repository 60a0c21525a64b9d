"""`make audit`: does an advisory name a version that a lock or a go.mod has?

    locks/*.txt, go.mod ─► packages ─► osv.dev, or a package index ─► a line for each advisory

OSV has the advisories of Python and of Go in one place (google.github.io/osv.dev/api). With
--index, for where OSV cannot be reached, a package index answers for Python alone, by the list
"vulnerabilities" of its JSON API. A mirror may have that list for the newest versions alone.
Packages without an answer are named. No code of a package is run.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen

OSV = "https://api.osv.dev"
PYTHON, GO = "PyPI", "Go"
SECONDS, BATCH, AT_ONCE = 30, 500, 8
PAGES = 20  # requests to OSV beyond those that all packages need; OSV itself names no end
_LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_REQUIRED = re.compile(r"^(?:require )?\s*([\w.-]+\.[\w./~-]+) v(\S+)", re.MULTILINE)


class LockedPackage(Frozen, order=True):
    """A package and its version, which a lock or go.mod names."""

    where: str
    ecosystem: str
    name: str
    version: str


class Advisory(Frozen, order=True):
    """An advisory against a version of a package, and the versions that fix it.

    A package index names these versions, OSV's answer does not.
    """

    package: LockedPackage
    name: str
    fixed: tuple[str, ...] = ()

    def __str__(self) -> str:
        package, fixed = self.package, f", fixed in {', '.join(self.fixed)}" if self.fixed else ""
        return f"{package.where}: {package.name} {package.version}: {self.name}{fixed}"


class AdvisoryAnswer(Frozen):
    """The answer of OSV or an index: advisories, and packages it did not judge (`unanswered`)."""

    advisories: tuple[Advisory, ...]
    unanswered: tuple[LockedPackage, ...] = ()


def packages(path: Path) -> Iterator[LockedPackage]:
    """Yield the packages that a lock or a go.mod names; raise Refused if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            f"{path} cannot be read: {error}", remedy="Name a lock or a go.mod"
        ) from error
    go = path.name == "go.mod"
    for name, version in (_REQUIRED if go else _LOCKED).findall(text):
        yield LockedPackage(str(path), GO if go else PYTHON, name, version)


def of_osv(listed: Sequence[LockedPackage], address: str = OSV) -> AdvisoryAnswer:
    """Return OSV's advisories of all packages.

    Raise Unavailable if OSV does not answer, leaves a package out, or never ends a list of
    advisories.
    """
    address = f"{address}/v1/querybatch"
    advisories: list[Advisory] = []
    waiting = [(package, "") for package in listed]  # each with the token of its next page
    for _ in range(len(listed) // BATCH + PAGES):
        if not waiting:
            return AdvisoryAnswer(tuple(sorted(advisories)))
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        queries = [
            {
                "package": {"name": one.name, "ecosystem": one.ecosystem},
                "version": one.version,
                "page_token": token,
            }
            for one, token in batch
        ]
        results = (_ask(address, {"queries": queries}) or {}).get("results")
        if not isinstance(results, list) or len(results) != len(batch):
            raise Unavailable(f"{address} left packages out, so nothing was judged")
        for (package, _), result in zip(batch, results, strict=True):
            advisories += (Advisory(package, one["id"]) for one in result.get("vulns", ()))
            if token := result.get("next_page_token"):
                waiting.append((package, token))
    raise Unavailable(f"{address} answered with ever more pages, so nothing was judged")


def of_index(listed: Sequence[LockedPackage], address: str) -> AdvisoryAnswer:
    """Return the advisories of each Python package by a package index's JSON API.

    Packages that are not Python's, or that the index does not know, are unanswered. Raise
    Unavailable if the index does not answer.
    """
    advisories: list[Advisory] = []
    unanswered = [package for package in listed if package.ecosystem != PYTHON]
    asked = [package for package in listed if package.ecosystem == PYTHON]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        documents = list(threads.map(lambda package: _of_version(package, address), asked))
    for package, document in zip(asked, documents, strict=True):
        if document is None:
            unanswered.append(package)
            continue
        advisories += (
            Advisory(package, entry["id"], tuple(entry["fixed_in"]))
            for entry in document.get("vulnerabilities", ())
            if not entry.get("withdrawn")
        )
    return AdvisoryAnswer(tuple(sorted(advisories)), tuple(unanswered))


def _of_version(package: LockedPackage, address: str) -> Mapping[str, Any] | None:
    """Return the index's JSON on a package version, None if it has none."""
    above = f"{address.rstrip('/')}/pypi/{package.name}"
    document = _ask(f"{above}/{package.version}/json")
    if document is None:
        document = _ask(f"{above}/json")
        if document is not None and document["info"]["version"] != package.version:
            return None
    return document


def _ask(address: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the JSON object at an address; `body` is sent by POST. Return None for a GET's 404.

    Raise Unavailable for other errors or no JSON object, Refused for an address without HTTP.
    """
    data = None if body is None else json.dumps(body).encode()
    if not address.startswith(("https://", "http://")):
        raise Refused(f"{address} is no address of a server", remedy="Begin it with https://")
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, data, headers)  # noqa: S310 - see above
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404 and body is None:
            return None
        raise Unavailable(f"{address} answered {error.code}, so nothing was judged") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"{address} gave no answer ({error}), so nothing was judged") from error
    if not isinstance(document, dict):
        raise Unavailable(f"{address} answered no JSON object, so nothing was judged")
    return document


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--osv", default=OSV, show_default=True, help="Address of OSV, or of its mirror.")
@click.option("--index", default="", help="Ask this package index instead, for Python alone.")
def main(files: tuple[Path, ...], osv: str, index: str) -> None:
    """Look for advisories against the versions in FILES: locks and go.mod.

    Exits with 1 if there is one, else with 2 if a package could not be judged, else with 0. Exits
    with 2 if a file cannot be read, or OSV or the index does not answer.
    """
    try:
        listed = sorted({package for path in files for package in packages(path)})
        answer = of_index(listed, index) if index else of_osv(listed, osv)
    except KubeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    for advisory in answer.advisories:
        print(advisory)
    judged = len(listed) - len(answer.unanswered)
    print(f"{len(answer.advisories)} advisories against {judged} of {len(listed)} packages.")
    if answer.unanswered:
        names = sorted({f"{one.name} {one.version}" for one in answer.unanswered})
        print(f"Not judged: {', '.join(names)}.", file=sys.stderr)
    sys.exit(1 if answer.advisories else 2 if answer.unanswered else 0)


if __name__ == "__main__":
    main()
