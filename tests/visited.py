"""A plugin of pytest that writes which files of the product a test goes through (test_flows.py).

`pytest -p tests.visited` writes them, one a line, to the file that KUBE_RDMA_VISITED names. A file
counts when a function of it is called, but not below a fake: what a fake calls is its own.
"""

import os
import sys
import threading
from pathlib import Path

import pytest

import kube_rdma

PRODUCT = f"{Path(kube_rdma.__file__).parent}/"
FAKES = ("/kube_rdma_testing/", "/network_life.py", "/other_plugin.py")
visited = set()


def _look(frame, event, _argument):
    name = frame.f_code.co_filename
    if event != "call" or not name.startswith(PRODUCT) or name in visited:
        return
    above = frame
    while above:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(PRODUCT):
            return  # it is imported: class bodies and decorators are no step of a flow
        if any(fake in above.f_code.co_filename for fake in FAKES):
            return
        above = above.f_back
    visited.add(name)


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call():
    """Look while a test runs, not while its fixtures do."""
    threading.setprofile(_look)
    sys.setprofile(_look)
    yield
    sys.setprofile(None)
    threading.setprofile(None)


def pytest_sessionfinish():
    names = sorted(name.removeprefix(PRODUCT) for name in visited)
    Path(os.environ["KUBE_RDMA_VISITED"]).write_text("".join(f"{name}\n" for name in names))
