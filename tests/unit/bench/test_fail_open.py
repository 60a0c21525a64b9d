"""The rig of the fail-open score, as far as it needs no lab."""

import subprocess

import pytest

from bench.fail_open import stopping_agent
from bench.fail_open.faults import ACTS, Target, script
from bench.fail_open.steps import BREAKING, CLAIMS, SHARES
from kube_rdma.model.attach import steps as kernel_steps


def test_every_step_is_a_place_where_the_agent_waits():
    """Each place is a method of the product, under the name that it has now."""
    for _, place, method, _ in stopping_agent.POINTS:
        assert callable(getattr(stopping_agent.owner(place), method))
    for place, method in (stopping_agent.RECORDS, stopping_agent.STEPS):
        assert callable(getattr(stopping_agent.owner(place), method))
    constant = {step for step, *_ in stopping_agent.POINTS}
    of_kernel = {"MakeLink", "SetLink", "AddAddress"}
    assert all(hasattr(kernel_steps, name) for name in of_kernel)
    assert constant | {"planned"} | of_kernel == {*SHARES.steps, *CLAIMS.steps}


@pytest.mark.parametrize("fault", ACTS)
def test_a_script_is_one_that_a_shell_understands(fault):
    text = script(fault, Target("node-1", "^python3.11 -I /x", "192.0.2.1"))
    subprocess.run(["sh", "-n", "-c", text], check=True)
    assert set(ACTS) == set(BREAKING)
