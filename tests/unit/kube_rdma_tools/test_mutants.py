"""Which function a fault is in, and which a test calls: by these `make mutants` chooses tests."""

import builtins

import pytest

from kube_rdma_tools.mutants.calls import NOTED, noting
from kube_rdma_tools.mutants.faults import faults
from kube_rdma_tools.mutants.host import changed_functions

SOURCE = '''"""A module."""
LIMIT = 3

class Pool:
    """A class."""
    size: int = 5

    def shares(self, limit=7):
        """Return the shares."""
        def inner():
            return limit > 2
        return inner()

    @property
    def free(self):
        return self.size + 1
'''
INSIDE = {"Pool.shares": {"limit > 2", "2", "return inner()", "return limit > 2"}}
INSIDE["Pool.free"] = {"return self.size + 1", "self.size + 1", "1"}


def test_a_fault_is_in_its_outermost_function_or_runs_at_import():
    seen = {name: set() for name in INSIDE}
    at_import = set()
    for fault in faults(SOURCE):
        try:
            ((before, after),) = changed_functions(SOURCE, fault.source, "a.py").items()
        except ValueError:
            at_import.add(fault.before)
        else:
            assert before.co_qualname == after.co_qualname
            seen[before.co_qualname].add(fault.before)
    assert (seen, at_import) == (INSIDE, {"3", "5", "7"})


@pytest.fixture
def noted(monkeypatch):
    calls = set()
    monkeypatch.setattr(builtins, NOTED, calls, raising=False)
    return calls


def test_a_copy_notes_its_calls_and_does_what_the_source_does(noted):
    names = {}
    exec(noting(SOURCE, "a.py"), names)  # noqa: S102 - the source above
    pool = names["Pool"]()
    assert (pool.free, names["Pool"].__doc__, pool.shares.__doc__) == (
        6,
        "A class.",
        "Return the shares.",
    )
    assert noted == {"a.py Pool.free"}
    assert pool.shares()
    assert noted == {"a.py Pool.free", "a.py Pool.shares"}
