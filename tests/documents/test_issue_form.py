"""The issue form for a card: GitHub takes it, and kube-rdma has the commands that it names."""

import re
import shlex

import click
import yaml

from kube_rdma.cli.main import cli

from .pages import ROOT, blocks
from .rules import faults

FILE = ROOT / ".github/ISSUE_TEMPLATE/device.yml"
FORM = yaml.safe_load(FILE.read_text(encoding="utf-8"))
# What GitHub allows there: "Syntax for GitHub's form schema" of its documentation.
FIELD = {"label", "description", "placeholder", "value"}
ATTRIBUTES = {"markdown": {"value"}, "input": FIELD, "textarea": FIELD | {"render"}}


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


def test_github_takes_it_and_it_asks_for_what_a_machine_needs():
    assert FORM.keys() == {"name", "description", "title", "body"}
    for part in FORM["body"]:
        assert part.keys() <= {"type", "id", "attributes", "validations"}
        assert part["attributes"].keys() <= ATTRIBUTES[part["type"]]
        assert part["attributes"].get("value" if part["type"] == "markdown" else "label")
    _, *fields = FORM["body"]
    assert [one["id"] for one in fields] == ["card", "kernel", "devices", "wrong", "record"]
    assert "render" not in fields[-1]["attributes"], "GitHub takes no file where text is rendered"


def test_its_commands_exist_with_their_options():
    read = blocks("device.yml", FORM["body"][0]["attributes"]["value"])
    written = [command.text for block in read for command in block.commands]
    written += re.findall("`([^`]+)`", str(FORM["body"][1:]))
    calls = [text for text in written if text.startswith("kube-rdma ")]
    assert list(faults(read)) == []
    assert len(calls) >= 5
    assert [unknown(shlex.split(text)[1:]) for text in calls] == [None] * len(calls)
    assert unknown(["devices", "--fly"]) == "No such option '--fly'."
    assert unknown(["fly"]) == "No such command 'fly'."
