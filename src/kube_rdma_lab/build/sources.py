"""Finds this machine's Debian mirrors in its apt configuration, which is only read.

debian.py asks for the mirror here. Only suite names stand in the lab's own files, so a machine
behind a mirror or a proxy needs no second configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.build.shell import ask

MIRROR_VARIABLE = "KUBE_RDMA_MIRROR"
APT = Path("/etc/apt")
# A source is taken for Debian's own if it serves component main of one of these.
SUITES = frozenset({
    *("bullseye", "bookworm", "trixie", "forky", "duke", "sid"),
    *("oldstable", "stable", "testing", "unstable"),
})  # fmt: skip
# What of the machine's apt options reaches our private apt: how to fetch, nothing else.
_FETCH_OPTION = re.compile(r'^Acquire::(https?::|Retries|Check-Valid-Until|Check-Date).* ".+";$')


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of apt's source list (sources.list(5))."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Base addresses of Debian's archive and, where the machine has it, its security archive."""

    main: str
    security: str = ""

    def lines(self, suite: str) -> tuple[str, ...]:
        """Return the apt sources of a suite, with those of security updates that the machine has.

        Suites that are archives of their own (backports) have no security archive.
        """
        lines = [f"deb {self.main} {suite} main"]
        if self.security and "-" not in suite:
            lines.append(f"deb {self.security} {suite}-security main")
        return tuple(lines)


def parse_one_line(text: str) -> Iterator[Source]:
    """Yield the binary sources of a file in the one-line style."""
    for raw in text.splitlines():
        line = re.sub(r"\[[^]]*\]", " ", raw.split("#", 1)[0])
        words = line.split()
        if len(words) >= 3 and words[0] == "deb":
            yield Source((words[1],), (words[2],), tuple(words[3:]))


def parse_deb822(text: str) -> Iterator[Source]:
    """Yield the binary sources of a file in the deb822 style; disabled ones are left out."""
    bare = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", bare):
        fields: dict[str, list[str]] = {}
        name = ""
        for line in paragraph.splitlines():
            if line[:1].isspace():
                fields.setdefault(name, []).extend(line.split())
            elif ":" in line:
                key, value = line.split(":", 1)
                name = key.strip().lower()
                fields[name] = value.split()
        if "deb" in fields.get("types", ()) and fields.get("enabled") != ["no"]:
            yield Source(*(tuple(fields.get(key, ())) for key in ("uris", "suites", "components")))


def find_mirrors(sources: Sequence[Source]) -> Mirrors | None:
    """Return Debian's mirrors among a machine's sources, or None if there are none."""
    usable = [source for source in sources if "main" in source.components and source.uris]
    main = [s.uris[0] for s in usable if SUITES & {_plain(suite) for suite in s.suites}]
    security = [
        source.uris[0]
        for source in usable
        if {f"{suite}-security" for suite in SUITES} & {_plain(suite) for suite in source.suites}
    ]
    if not main:
        return None
    return Mirrors(main[0], security[0] if security else "")


def machine_sources(apt: Path = APT) -> list[Source]:
    """Return all sources of the machine, main file first, in apt's order."""
    sources: list[Source] = []
    if (legacy := apt / "sources.list").is_file():
        sources += parse_one_line(legacy.read_text())
    for path in sorted((apt / "sources.list.d").glob("*")):
        if path.suffix == ".list":
            sources += parse_one_line(path.read_text())
        elif path.suffix == ".sources":
            sources += parse_deb822(path.read_text())
    return sources


def mirrors() -> Mirrors:
    """Return the Debian mirrors to use: `$KUBE_RDMA_MIRROR`, else the machine's own.

    The security archive is the machine's own in both cases. Raise Refused without any mirror.
    """
    configured = find_mirrors(machine_sources())
    if chosen := os.environ.get(MIRROR_VARIABLE):
        return Mirrors(chosen, configured.security if configured else "")
    if configured:
        return configured
    raise Refused(
        "this machine's apt configuration names no Debian mirror",
        remedy=f"Set {MIRROR_VARIABLE} to the base address of one, the part before `/dists`",
        where=str(APT),
    )


def fetch_options() -> tuple[str, ...]:
    """Return the machine's apt options for fetching (_FETCH_OPTION), as lines of apt.conf."""
    dump = ask(["apt-config", "dump"])
    return tuple(line for line in dump.splitlines() if _FETCH_OPTION.match(line))


def _plain(suite: str) -> str:
    return suite.rstrip("/")
