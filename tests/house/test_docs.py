"""What the documents promise is there: links, words of the Makefile, commands, the picture."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click

from kube_rdma.cli.main import cli
from kube_rdma_tools.mode_tree import mode_tree_svg

from .tree import FENCED, ROOT, texts

HEADINGS = ("## Context", "## Decision", "## Consequences")
PAGES = [(name, text) for name, text in texts() if name.endswith(".md")]
DECISIONS = [(n, t) for n, t in PAGES if re.match(r"docs/decisions/\d", n)]


def dead_links(name: str, text: str) -> Iterator[str]:
    """Relative links that lead to no file."""
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text):
        link = (target[0] or target[1]).partition("#")[0]
        if link and "://" not in link and not (ROOT / name).parent.joinpath(link).exists():
            yield f"{name}: nothing at {link}"


def anchors(text: str) -> set[str]:
    """What links may name of a page: its headings, as GitHub and its kind write them."""
    fenceless = FENCED.sub("", text)
    slugs: list[str] = []
    for heading in re.findall(r"(?m)^#{1,6} (.+)$", fenceless):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        slugs.append(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
    return set(slugs)


def dead_anchors(name: str, text: str) -> Iterator[str]:
    """Links to a heading that its page does not have."""
    for target, anchor in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", text):
        page = (ROOT / name).parent / target
        if target and ("://" in target or page.suffix != ".md" or not page.is_file()):
            continue
        if anchor not in anchors(page.read_text(encoding="utf-8") if target else text):
            yield f"{name}: {target} has no heading #{anchor}"


def titles(text: str) -> list[str]:
    """The headings of the first level: two would stand in the site's navigation as two pages."""
    return re.findall(r"(?m)^# (.+)$", FENCED.sub("", text))


def dead_tests(name: str, text: str) -> Iterator[str]:
    """Tests that a page names beside a promise, and that are not there."""
    prose = re.sub(r"(`+).*?\1", "", text)
    for file, test in re.findall(r"<!-- held by: (\S+?)::(\S+) -->", prose):
        path, word = ROOT / file, test.rpartition("::")[2]
        tests = path.read_text(encoding="utf-8") if path.is_file() else ""
        defined = rf"(?m)^ *(?:(?:async )?def {word}\(|class {word}\b|{word} = )"
        if not re.search(defined, tests):
            yield f"{name}: there is no test {file}::{test}"


def unknown_words(name: str, text: str) -> Iterator[str]:
    """Words after `make` that the Makefile does not have."""
    known = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
    for word in re.findall(r"(?m)(?:^|`|&& )make ([a-z][a-z-]*)", text):
        if word not in known:
            yield f"{name}: the Makefile has no word {word}"


def unknown_commands(name: str, text: str) -> Iterator[str]:
    """Words after `kube-rdma` (and `kube-rdma lab`) that the command does not have."""
    (entry,) = entry_points(group="kube_rdma.commands", name="lab")
    lab: click.Group = entry.load()
    with click.Context(cli) as context:
        ours, labs = cli.list_commands(context), lab.list_commands(context)
    code = "\n".join(re.findall(r"(?s)```.*?```|`[^`]+`", text))
    for word, sub in re.findall(r"(?m)(?:^|`|/)kube-rdma ([a-z][a-z-]*)(?: ([a-z]+))?", code):
        if word not in ours:
            yield f"{name}: kube-rdma has no command {word}"
        elif word == "lab" and sub and sub not in labs:
            yield f"{name}: kube-rdma lab has no command {sub}"


def test_links_lead_somewhere() -> None:
    """Every relative link of every page."""
    assert not [line for page in PAGES for line in dead_links(*page)]


def test_links_lead_to_headings() -> None:
    """Also the part behind # is there."""
    assert not [line for page in PAGES for line in dead_anchors(*page)]


def test_a_page_has_one_title() -> None:
    """Also a page of an example."""
    shown = [page for page in PAGES if page[0].startswith(("docs/", "examples/"))]
    assert not [name for name, text in shown if len(titles(text)) != 1]


def test_promises_name_tests_that_exist() -> None:
    """What a page says to be held by a test."""
    assert not [line for page in PAGES for line in dead_tests(*page)]


def test_words_of_make_exist() -> None:
    """Every `make` in every page."""
    assert not [line for page in PAGES for line in unknown_words(*page)]


def test_commands_exist() -> None:
    """Every command that README and CONTRIBUTING tell people to run."""
    told = [page for page in PAGES if page[0] in {"README.md", "CONTRIBUTING.md"}]
    assert len(told) == 2
    assert not [line for page in told for line in unknown_commands(*page)]


def test_readme_is_short() -> None:
    """It is read in one go."""
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 130


HARDWARE = re.compile(r"RDMA|RoCE|InfiniBand|EFA|bnxt_re|switchdev")


def claims_of_hardware(text: str) -> Iterator[str]:
    """Rows of docs/hardware.md that say of a kind of card that it works."""
    for environment, verdict in re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|", text):
        if HARDWARE.search(environment) and verdict == "works":
            yield environment


def test_no_page_claims_rdma_hardware() -> None:
    """README says in one sentence that there was none, and the table calls no such card working."""
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "kube-rdma has never run on RDMA hardware;" in readme
    table = (ROOT / "docs/hardware.md").read_text(encoding="utf-8")
    assert "no RDMA hardware" in table
    assert not list(claims_of_hardware(table))
    assert list(claims_of_hardware("| RoCE of NVIDIA | works | a |")) == ["RoCE of NVIDIA"]


def test_planted_faults_are_found() -> None:
    """A dead link, a test, a word and two commands that do not exist are named."""
    assert list(dead_links("docs/x.md", "[a](nowhere.md#b) [b](picture.svg) [c](https://d.e/f)"))
    planted = "# A `b`, c\n[a](#a-b-c) [b](#nowhere) [c](docs/story.md#nowhere)"
    assert [line.partition("#")[2] for line in dead_anchors("x.md", planted)] == ["nowhere"] * 2
    assert titles("# One\n```sh\n# comment\n```\n# Two\n") == ["One", "Two"]
    gone = "tests/house/test_docs.py::test_gone"
    assert list(dead_tests("x.md", f"Never. <!-- held by: {gone} -->")) == [
        f"x.md: there is no test {gone}"
    ]
    assert list(unknown_words("x.md", "run `make tea`")) == ["x.md: the Makefile has no word tea"]
    assert (
        len(list(unknown_commands("x.md", "```\nkube-rdma fly\n```\n`kube-rdma lab fly n`"))) == 2
    )
    assert not list(unknown_commands("x.md", "`kube-rdma devices`\nkube-rdma finds"))


def test_decisions_have_their_headings() -> None:
    """A page of docs/decisions says the context, the decision and what follows from it."""
    assert DECISIONS
    assert not [n for n, t in DECISIONS if [h for h in HEADINGS if f"\n{h}\n" not in t]]


def test_the_index_of_decisions_has_each() -> None:
    """With its title. There are at most 40, and each fits on a screen."""
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", index)
    assert sorted(rows) == [
        (Path(name).name[:4], Path(name).name, text.splitlines()[0].partition(" · ")[2])
        for name, text in DECISIONS
    ]
    assert len(rows) <= 40
    assert not [name for name, text in DECISIONS if len(text.split()) > 300]


def test_each_decision_that_is_named_is_there() -> None:
    """By its number in a sentence or a path: in code, tests, manifests and pages."""
    there = {Path(name).name[:4] for name, _ in DECISIONS}
    named = re.compile(r"(?i)\bdecisions?[/ ([]{1,2}(0\d{3})\b")
    assert named.findall("Decision 0001, docs/decisions/0006") == ["0001", "0006"]
    assert not [f"{n}: {d}" for n, text in texts() for d in named.findall(text) if d not in there]


SHELVES = ("Start", "How to", "Reference", "Design")
READERS = ("job author", "platform engineer", "on call", "contributor")


def faults_of_index(index: str, pages: Iterable[str]) -> Iterator[str]:
    """Shelves and rows of docs/README.md that are wrong, and pages that are not in it once."""
    titles_and_texts = re.split(r"(?m)^## (.+)$", index)[1:]
    if tuple(titles_and_texts[::2]) != SHELVES:
        yield f"the shelves are {', '.join(titles_and_texts[::2])}, not {', '.join(SHELVES)}"
    rows = re.findall(r"(?m)^\| (\[.+?) \| (.+?) \|", "".join(titles_and_texts[1::2]))
    yield from (f"{links}: no reader {name}" for links, name in rows if name not in READERS)
    linked = Counter(re.findall(r"\]\(([^)]+\.md)\)", "".join(links for links, _ in rows)))
    yield from (f"{name} is there {count} times" for name, count in linked.items() if count > 1)
    yield from (f"{name} is on no shelf" for name in pages if not linked[name])


def test_the_index_has_each_page_once_with_its_shelf_and_its_reader() -> None:
    """Every page for users stands on one of the four shelves, and is for one reader."""
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = [name.removeprefix("docs/") for name, _ in PAGES if name.startswith("docs/")]
    wanted = [name for name in pages if not name.startswith("decisions/") and name != "README.md"]
    assert not list(faults_of_index(index, [*wanted, "decisions/README.md"]))


def test_planted_faults_of_the_index_are_found() -> None:
    """A shelf, a reader, a page that is there twice, a page that is missing."""
    row = "| [A](a.md) | {} | read it |\n"
    shelves = "".join(f"## {title}\n" for title in SHELVES)
    assert list(faults_of_index(shelves + row.format("on call"), ["a.md"])) == []
    planted = shelves + "## More\n" + row.format("on call") + row.format("everyone")
    assert list(faults_of_index(planted, ["a.md", "b.md"])) == [
        f"the shelves are {', '.join((*SHELVES, 'More'))}, not {', '.join(SHELVES)}",
        "[A](a.md): no reader everyone",
        "a.md is there 2 times",
        "b.md is on no shelf",
    ]


def test_picture_is_what_the_script_draws() -> None:
    """docs/picture.svg was not changed by hand; `tools/picture` writes it."""
    picture = runpy.run_path(str(ROOT / "tools/picture"))
    assert picture["draw"]() == (ROOT / "docs/picture.svg").read_text(encoding="utf-8")


def test_picture_of_modes_is_what_the_program_draws() -> None:
    """`python -m kube_rdma_tools.mode_tree docs/modes.svg` writes it, anew when a mode changes."""
    assert mode_tree_svg() == (ROOT / "docs/modes.svg").read_text(encoding="utf-8")
