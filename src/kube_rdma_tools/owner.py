"""`python -m kube_rdma_tools.owner`: writes what only the owner of the project can say.

Three answers are asked for, or taken as options: the owner's name at the forge, the address of the
repository and a mail address. Everything that needs one of them is written here, so another owner
runs it again; the same answers change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma_lab.build.program import run

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = "Written by `python -m kube_rdma_tools.owner`"
_HASH, _HTML = f"# {WRITTEN}.\n", f"<!-- {WRITTEN}. -->\n"


class ProjectOwner(Frozen):
    """The project's owner: a name on the forge, a repository and an address for mail."""

    name: str  # a person or organisation/team of the forge
    repository: str  # its address, without .git or a slash at the end
    mail: str


# Files that this command alone writes, whole.
_WHOLE: dict[str, str] = {
    ".github/CODEOWNERS": f"{_HASH}* @{{name}}\n",
    ".github/ISSUE_TEMPLATE/config.yml": f"""\
{_HASH}blank_issues_enabled: false
contact_links:
- name: A weakness that somebody could use
  url: {{repository}}/security/advisories/new
  about: Report it in private.
- name: A question
  url: {{repository}}/blob/HEAD/SUPPORT.md
  about: Where an answer comes from.
""",
    "CODE_OF_CONDUCT.md": f"""\
{_HTML}# Code of conduct
Whoever works on RDMA for Kubernetes is welcome here, whatever their origin, gender, faith, age
or experience.

- Talk about the work, not about the person. A fault is a fact about a program.
- Say what is wrong, why it matters and what would be right. Thank people for what they found.
- Nobody is insulted, threatened, followed or touched, and nobody's private data is published.

This holds in issues, pull requests and mail, and wherever somebody speaks for the project. The
[Contributor Covenant](https://www.contributor-covenant.org/) says at length what is meant.

If somebody breaks it, write to <{{mail}}>. The owners answer and name nobody who wrote. They can
warn a person, take a text back, or close the project to a person.
""",
    "SUPPORT.md": f"""\
{_HTML}# Support

| you want | do this |
|---|---|
| to know why RDMA does not work | run `kube-rdma why`, then `kube-rdma doctor` |
| to know how something is done | look into the [pages](docs/README.md) |
| to report a fault or a card | [open an issue]({{repository}}/issues/new/choose) |
| to report a weakness that somebody could use | do what [SECURITY.md](SECURITY.md) says |
| to ask for something else | write to <{{mail}}> |

Answers are given as time allows. The newest version is the one that gets fixes.
""",
}
# Files that others write too: what a pattern finds there is this command's.
_PARTS: dict[str, tuple[str, str]] = {
    "SECURITY.md": (
        r"(?s)\A# Security\n.*?(?=\n## )",
        f"""\
# Security
{_HTML}
Report a weakness in private, not in an issue: by the [form]({{repository}}/security/advisories/new)
of the forge, or by mail to <{{mail}}>. The newest version is the one that gets fixes.
""",
    ),
    "charts/kube-rdma/Chart.yaml": (
        rf"(?s)(?:{re.escape(_HASH)}.*)?\Z",
        f"""\
{_HASH}home: {{repository}}
sources:
- {{repository}}
maintainers:
- name: "{{name}}"
  email: "{{mail}}"
""",
    ),
}


def write(root: Path, owner: ProjectOwner) -> list[str]:
    """Write all files that name the owner below `root`; return the names of changed ones."""
    fields = {"name": owner.name, "repository": owner.repository, "mail": owner.mail}
    texts = {name: text.format_map(fields) for name, text in _WHOLE.items()}
    for name, (pattern, text) in _PARTS.items():
        before = (root / name).read_text(encoding="utf-8")
        texts[name] = re.sub(pattern, text.format_map(fields), before, count=1)
    changed = [name for name, text in texts.items() if _differs(root / name, text)]
    for name in changed:
        (root / name).write_text(texts[name], encoding="utf-8")
    return changed


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


def _answer(form: str, example: str) -> Callable[[click.Context, click.Parameter, str], str]:
    """Return a callback for click that returns group 1 of a value that matches `form`.

    It raises Refused for another value.
    """

    def check(_: click.Context, option: click.Parameter, value: str) -> str:
        if not (match := re.fullmatch(form, value.strip(), re.ASCII)):
            raise Refused(
                f"{value!r} has another form than {example}",
                remedy="Write it like that",
                where=option.opts[0],
            )
        return match[1]

    return check


@click.command()
@click.option(
    "--owner",
    "name",
    prompt="Owner at the forge, a name or organisation/team",
    callback=_answer(r"@?([A-Za-z0-9][A-Za-z0-9-]*(?:/[A-Za-z0-9][\w.-]*)?)", "jane or acme/rdma"),
    help="Owner at the forge: a name or organisation/team.",
)
@click.option(
    "--repository",
    prompt="Address of the repository",
    callback=_answer(
        r"(https://[A-Za-z0-9.-]+(?::\d+)?(?:/[\w.-]+?){2,})(?:\.git)?/?",
        "https://forge.example/acme/kube-rdma",
    ),
    help="Address of the repository.",
)
@click.option(
    "--mail",
    prompt="Mail address for questions and reports",
    callback=_answer(r"([\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)", "rdma@acme.example"),
    help="Mail address for questions and reports.",
)
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, hidden=True)
def main(name: str, repository: str, mail: str, root: Path) -> None:
    """Write the files that need an owner: code owners, conduct, support, contact, chart."""
    for written in write(root, ProjectOwner(name, repository, mail)) or ["nothing to change"]:
        click.echo(written)


if __name__ == "__main__":
    run(main, "python -m kube_rdma_tools.owner")
