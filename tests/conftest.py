"""For all tests: fixtures, how hard Hypothesis tries, where and how many at once they run.

What they took is told by times.py.
"""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from kube_rdma_lab import pace

pytest_plugins = ("tests.asleep", "tests.groups", "tests.times")

# No memory of earlier runs: it is of trees and strategies that have changed since, and the workers
# of `make check` would share it. A failure prints how to get it again.
# And no deadline for an example: a busy machine is no defect.
# Each run tries other examples, so that many runs of few find what one of many does.
settings.register_profile(
    "kube-rdma", database=None, print_blob=True, deadline=None, max_examples=40
)
settings.load_profile("kube-rdma")
# For `make check`, which people run all the time, and for `make test-all`. A test that needs more
# or fewer examples than others names its share of settings().max_examples.
settings.register_profile("quick", settings.get_profile("kube-rdma"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("kube-rdma"), max_examples=100)

HERE = Path(__file__).parent
LABS = ("lab", "vm")
MEMORY = Path("/dev/shm")  # tempfile makes the folders in it
ROOM = 2 << 30  # a whole run leaves 300 MB, in 100,000 files


def has_room(folder):
    """Whether tests may have their folders there: large enough, and programs run there too."""
    if not os.access(folder, os.W_OK):
        return False
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize >= ROOM and not facts.f_flag & os.ST_NOEXEC


# On a disk the trees of files that stand for a kernel take a third of a run. For this process only:
# programs that it starts, a build of the lab among them, may need more room.
if "TMPDIR" not in os.environ and has_room(MEMORY):
    tempfile.tempdir = str(MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """More workers than processors, because many tests wait for a moment."""
    return len(os.sched_getaffinity(0)) * 3 // 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Refuse the mark `lab` outside of the folders that `make test` looks for it in."""
    for item in items:
        # The mark is asked for first: few have it, and paths are slow.
        if item.get_closest_marker("lab") and not any(
            HERE / name in item.path.parents for name in LABS
        ):
            raise pytest.UsageError(f"{item.nodeid}: `lab` is for tests in {' and '.join(LABS)}")


def pytest_collection_finish():
    """What is loaded by now stays to the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def pytest_report_header():
    """Say first how this machine compares: on a slow one everything takes longer, and passes."""
    return pace.describe(pace.measure())


@pytest.fixture
def snapshot(request):
    """Compare a text with a file of data/ beside the test; to accept a change, edit the file."""

    def compare(name, text):
        path = Path(request.path).parent / "data" / name
        assert path.exists(), f"{path} is missing; it should hold:\n{text}"
        assert text.rstrip("\n") == path.read_text().rstrip("\n")

    return compare
