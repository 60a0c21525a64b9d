"""The issue forms: GitHub takes them, and kube-rdma has the commands that they name."""

import re
import shlex

import click
import pytest
import yaml

from kube_rdma.cli.main import cli

from .pages import ROOT, blocks
from .rules import faults

FOLDER = ROOT / ".github/ISSUE_TEMPLATE"
FORMS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in FOLDER.glob("*.yml")
    if path.name != "config.yml"
}
# What GitHub allows there: "Syntax for GitHub's form schema" of its documentation.
FIELD = {"label", "description", "placeholder", "value"}
ATTRIBUTES = {"markdown": {"value"}, "input": FIELD, "textarea": FIELD | {"render"}}
REQUIRED = {"name", "description", "body"}


def unknown(words):
    """The command's word or option that is not there; None where all are."""
    command = cli
    try:
        with click.Context(cli) as context:
            while isinstance(command, click.Group):
                _, command, words = command.resolve_command(context, words)
            command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("name", FORMS)
def test_github_takes_it(name):
    form = FORMS[name]
    assert REQUIRED <= form.keys() <= REQUIRED | {"title", "labels"}
    for part in form["body"]:
        assert part.keys() <= {"type", "id", "attributes", "validations"}
        assert part["attributes"].keys() <= ATTRIBUTES[part["type"]]
        assert part["attributes"].get("value" if part["type"] == "markdown" else "label")
    asked = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(asked) == len(set(asked))


def test_a_card_is_reported_with_what_a_machine_and_a_self_test_need():
    _, *fields = FORMS["device.yml"]["body"]
    wanted = ["card", "kernel", "devices", "wrong", "selftest", "record"]
    assert [one["id"] for one in fields] == wanted
    assert "render" not in fields[-1]["attributes"], "GitHub takes no file where text is rendered"


@pytest.mark.parametrize("name", FORMS)
def test_its_commands_exist_with_their_options(name):
    body = FORMS[name]["body"]
    shown = "".join(part["attributes"].get("value", "") for part in body)
    read = blocks(name, shown)
    written = [command.text for block in read for command in block.commands]
    written += re.findall("`([^`]+)`", str(body))
    calls = [text for text in written if text.startswith("kube-rdma ")]
    assert list(faults(read)) == []
    assert [unknown(shlex.split(text)[1:]) for text in calls] == [None] * len(calls)


def test_planted_commands_are_found():
    assert unknown(["devices", "--fly"]) == "No such option '--fly'."
    assert unknown(["fly"]) == "No such command 'fly'."
