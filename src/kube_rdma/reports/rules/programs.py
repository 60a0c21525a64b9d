"""Recognizes kube-rdma's programs by what their containers run: DaemonSets have the seeds' names.

reports/cluster asks of each container template.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kube_rdma.model.reports.cluster import ProgramRole, ProgramTemplate

_ISOLATION = "--namespace-isolation"
_USUAL = "default,kube-system"  # of the agent's option without a list
_COMMAND = "kube-rdma"
_MARK = "rdma"  # an image that was pushed under another name still has it in its arguments' company


def program_role(template: ProgramTemplate) -> ProgramRole | None:
    """Which program a container is, None when it is another's.

    Without words the image's own are run, which is the agent: so seeds S2 and S3 start it.
    """
    words = template.words
    if words and words[0].rpartition("/")[2] == _COMMAND:
        words = words[1:]
        if not words:
            return None
    elif not words and _COMMAND in template.image:
        return ProgramRole.AGENT
    elif _MARK not in template.image + template.workload:
        return None
    return next((role for role in ProgramRole if words[:1] == (role.value,)), None)


def serves_cards(template: ProgramTemplate) -> bool:
    """Whether a container is an agent with a node's cards; who only labels nodes has none."""
    words = template.words
    is_labeller = says(words, "--role", "node") and not says(words, "--role", "plugin")
    return program_role(template) is ProgramRole.AGENT and not is_labeller


def says(words: Sequence[str], option: str, value: str = "") -> bool:
    """Whether the words of a command have an option, with this value if one is asked for."""
    if not value:
        return option in words
    return f"{option}={value}" in words or (option, value) in pairwise(words)


def everybodys(words: Sequence[str]) -> tuple[str, ...] | None:
    """The namespaces whose networks all pods may name, by an agent's words; None: all of them."""
    for word, following in pairwise((*words, "")):
        option, equals, text = word.partition("=")
        if option == _ISOLATION:
            alone = not following or following.startswith("-")
            names = text if equals else _USUAL if alone else following
            return tuple(filter(None, map(str.strip, names.split(","))))
    return None
