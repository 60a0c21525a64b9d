"""Each command of kube-rdma explains itself: what its list, its options and its examples say."""

import inspect
import shlex

import click
import pytest

from kube_rdma.cli.examples import HEADING, examples
from kube_rdma.cli.main import cli

from .test_descriptions import INSIDE, fault_of_text

NAME = "kube-rdma"
COLUMNS = 80
LONGEST = 45  # characters of a summary, so that no list of commands cuts it
OF_PODS = {"kube-rdma agent", "kube-rdma controller", "kube-rdma network left"}


def contexts(command, name=NAME, parent=None):
    """The context of a command, and of all below it."""
    settings = {**command.context_settings, "terminal_width": COLUMNS}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            yield from contexts(command.get_command(context, word), word, context)


def paragraphs(context):
    """Those of a command's help, each in one line."""
    text = inspect.cleandoc(context.command.help or "")
    return [" ".join(each.split()) for each in text.split("\n\n") if each]


def example_lines(context):
    """What a command says that can be typed."""
    _, heading, below = (context.command.epilog or "").partition(f"{HEADING}\n")
    lines = below.partition("\n\n")[0].splitlines()
    return [line.strip() for line in lines if heading]


def faults(context):
    """All that is wrong with the help of one command, a sentence each."""
    path = context.command_path
    found = [*_of_summary(context), *_of_parameters(context), *_of_examples(context)]
    for each in paragraphs(context):
        found += [fault for fault in (fault_of_text(each),) if fault]
    if INSIDE.search(context.command.epilog or ""):
        found.append("speaks of the makers' papers at its end")
    wide = [line for line in context.get_help().splitlines() if len(line) > COLUMNS]
    found += [f"has a line that is too wide: {line.strip()}" for line in wide]
    return [f"{path} {fault}" for fault in found]


def _of_summary(context):
    texts = paragraphs(context)
    if not texts:
        yield "has no help"
        return
    if len(texts[0]) > LONGEST:
        yield f"has a long summary: {texts[0]}"
    if len(texts) == 1:
        yield "has nothing but a summary"
    if context.parent is None:
        return
    rows = [line.split(maxsplit=1) for line in context.parent.get_help().splitlines()]
    if [context.info_name, texts[0]] not in rows:
        yield f"has another line in the list of {context.parent.command_path}: {texts[0]}"


def _of_parameters(context):
    for parameter in context.command.get_params(context):
        name = parameter.opts[-1]
        text = getattr(parameter, "help", None)
        if getattr(parameter, "hidden", False):
            continue
        if not text:
            if isinstance(parameter, click.Option):
                yield f"{name} has no help"
        elif fault := fault_of_text(text):
            yield f"{name} {fault}"


def _of_examples(context):
    lines = example_lines(context)
    is_for_people = not isinstance(context.command, click.Group)
    if is_for_people and (context.command_path in OF_PODS) == bool(lines):
        yield "has examples" if lines else "has no examples"
    for line in lines:
        if not f"{line} ".startswith(f"{context.command_path} "):
            yield f"has an example of another command: {line}"
        elif why := misread(context.find_root().command, line):
            yield f"has a wrong example: {line}: {why}"


def misread(command, line):
    """Why a command does not take an example, or None. It is not run."""
    name, *words = shlex.split(line.partition(" > ")[0].partition(" | ")[0])
    context = None
    try:
        while True:
            context = command.make_context(name, words, parent=context)
            words = [*getattr(context, "_protected_args", ()), *context.args]
            if not isinstance(command, click.Group) or not words:
                return None
            name, command, words = command.resolve_command(context, words)
    except click.ClickException as error:
        return error.format_message()


@pytest.fixture(autouse=True)
def _any_file(monkeypatch):
    """Files of examples need not be there."""
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _parameter, _context: value)


@pytest.mark.parametrize("context", [*contexts(cli)], ids=lambda context: context.command_path)
def test_a_command_explains_itself(context):
    assert faults(context) == []


@pytest.mark.parametrize("name", ["agent", "controller", "network"])
def test_the_list_says_who_runs_what_people_do_not(name):
    (row,) = [
        line
        for line in click.Context(cli, terminal_width=COLUMNS).get_help().splitlines()
        if line.split()[:1] == [name]
    ]
    assert row.endswith("runs it.")


SIZE = click.Option(["--size"], help="Message size in bytes.")
GOOD = {
    "help": "Measure a pair.\n\nThe pair is measured once.",
    "epilog": examples("kube-rdma measure --size 3"),
    "params": [SIZE],
}


def planted(**changes):
    """What is found in a small group whose command `measure` has these changes."""
    group = click.Group("kube-rdma", help="Measure pairs.\n\nThis is a test.")
    group.add_command(click.Command("measure", **{**GOOD, **changes}))
    return [fault for context in contexts(group) for fault in faults(context)]


def test_a_good_command_passes():
    assert planted() == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"help": None}, "has no help"),
        ({"help": "Measure a pair."}, "has nothing but a summary"),
        ({"help": "Measure a pair\n\nOnce."}, "is no sentence: Measure a pair"),
        ({"help": f"Measure {'very ' * 9}long.\n\nOnce."}, "has a long summary"),
        ({"help": "Measure. Or not.\n\nOnce."}, "has another line in the list of kube-rdma"),
        ({"short_help": "Weigh a pair."}, "has another line in the list of kube-rdma"),
        ({"help": "Measure.\n\nNor twice."}, "begins as a riddle"),
        ({"help": "Measure.\n\nSee decision 7."}, "speaks of the makers' papers"),
        ({"epilog": None}, "has no examples"),
        ({"epilog": examples("kube-rdma weigh")}, "has an example of another command"),
        ({"epilog": examples("kube-rdma measured")}, "has an example of another command"),
        ({"epilog": examples("kube-rdma measure --sizes 3")}, "has a wrong example"),
        ({"epilog": examples("kube-rdma measure 3")}, "has a wrong example"),
        ({"epilog": examples(f"kube-rdma measure --size {'3' * 80}")}, "has a line that is too"),
        ({"epilog": GOOD["epilog"] + "\n\nAs the seed."}, "speaks of the makers' papers"),
    ],
)
def test_a_fault_of_a_command_is_found(changes, what):
    assert any(fault.startswith(f"kube-rdma measure {what}") for fault in planted(**changes))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "has no help"),
        ("", "has no help"),
        ("Of a message.", "begins as a riddle"),
        ("What each pair must reach.", "begins as a riddle"),
        ("The whole map.", "begins as a riddle"),
        ("Message size in bytes", "is no sentence"),
        ("Message size.  [default: 2]", "is no sentence"),
        ("As the script of seed S1.", "speaks of the makers' papers"),
        ("Message size, see DESIGN.", "speaks of the makers' papers"),
        ("Message " * 61 + "size.", "is too long"),
    ],
)
def test_a_fault_of_an_option_is_found(text, what):
    found = planted(params=[SIZE, click.Option(["--rail"], help=text)])
    assert any(fault.startswith(f"kube-rdma measure --rail {what}") for fault in found)


def test_a_hidden_option_needs_no_help():
    assert planted(params=[SIZE, click.Option(["--rail"], hidden=True)]) == []
