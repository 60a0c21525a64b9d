"""The same policy without spc_t, in which super_t is the type without confinement.

Bottlerocket has super_t and no spc_t; its own policy is not to be had as a package. What its
manifests name is the agent's type there (docs/agent.md#selinux-and-apparmor), and what those of
other systems name is refused.
"""

from __future__ import annotations

import pytest

from .selinux_node import Node, enforce
from .test_selinux import PODS, REFUSED

# Slow, as test_selinux.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.kernel("lab.policy=super_t security=selinux audit=1 audit_backlog_limit=8192"),
]

AGENTS, ELSEWHERE = "super_t", "spc_t"


@pytest.fixture(scope="module")
def node():
    made = Node()
    yield made
    made.close()


def test_a_type_that_the_policy_lacks_starts_no_container(node):
    """With a policy that is not enforced neither: there is no such label."""
    container = node.container(ELSEWHERE, "c1,c2")
    for on in (False, True):
        enforce(on)
        with pytest.raises(AssertionError, match="preexec_fn"):
            node.runtime.run(words=("true",), **container)


def test_the_agent_s_type_may_do_all_that_the_agent_does(node):
    answers = node.answers(node.container(AGENTS, "c3,c4"))
    assert not {act: answer for act, answer in answers.items() if answer}


def test_a_pod_s_type_may_not(node):
    answers = node.answers(node.container(PODS, "c5,c6"))
    assert {act for act, answer in answers.items() if answer} >= REFUSED
