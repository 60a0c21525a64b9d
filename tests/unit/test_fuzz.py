"""The corpora of the fuzzer are replayed, and what it looks for is found where it is planted."""

import ast
import json
import re
import subprocess
import sys

import pytest

from kube_base.errors import Refused
from tests.fuzz import corpus, table
from tests.fuzz.table import TARGETS
from tests.fuzz.target import ROOT, FuzzTarget, each, tried

MOST_BYTES = 300_000  # of all corpora, in the repository


def planted(read, **more):
    return FuzzTarget("planted", read, (b"",), **more)


def refuse(data):
    raise Refused("it is wrong", remedy="Correct it")


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_takes_its_samples(name):
    """Else what is made of them would fail at the first byte, and show nothing."""
    for sample in TARGETS[name].samples:
        TARGETS[name].read(sample)
        assert len(sample) <= TARGETS[name].most


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_of_a_corpus_is_a_defect(name):
    """A busy machine is none, so the time is not looked at."""
    target = TARGETS[name]
    defects = [tried(target, data, seconds=float("inf")) for data in corpus.read(target)]
    assert not list(filter(None, defects))


def test_each_corpus_is_a_targets_and_all_are_small():
    files = {path.name: path.stat().st_size for path in corpus.FOLDER.iterdir()}
    assert files.keys() <= {target.file for target in TARGETS.values()}
    assert len({target.file for target in TARGETS.values()}) == len(TARGETS)
    assert sum(files.values()) <= MOST_BYTES


def test_every_target_was_fed_and_all_of_them_ten_million_inputs():
    """As the page says; each row has what is needed to compare it."""
    file = ROOT / "bench/results/fuzz/2026-11-27.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert sum(row["inputs"] for row in rows) > 10_000_000
    assert {row["target"] for row in rows} <= TARGETS.keys()
    assert all(row["commit"] and row["machine"] for row in rows)


def test_a_reader_may_raise_what_is_allowed_and_nothing_else():
    """A defect names the line of the product that comes last on the way to it."""
    assert tried(planted(refuse), b"") is None
    defect = tried(planted(lambda data: data[3]), b"abc")
    assert (defect.kind, defect.data) == ("IndexError", b"abc")
    assert tried(planted(lambda data: data[3], allowed=(IndexError,)), b"abc") is None
    inside = tried(planted(TARGETS["uevent"].read), None)
    assert re.fullmatch(r"src/kube_rdma/adapters/kernel/netlink/events\.py:\d+", inside.place)


def test_an_error_without_a_sentence_is_a_defect():
    def wordless(data):
        raise ValueError

    assert tried(planted(wordless, allowed=(ValueError,)), b"").kind == "no sentence"


def test_what_takes_long_is_a_defect():
    assert tried(planted(len), b"", seconds=-1.0).kind == "slow"


def test_what_one_reader_refuses_another_one_reads():
    read = []
    each(refuse, read.append)(b"x")
    assert read == [b"x"]


def test_a_corpus_comes_back(tmp_path):
    target = planted(len)
    assert corpus.read(target, tmp_path) == ()
    inputs = (b"\0\xff\n", b"", b'"')
    corpus.write(target, inputs, tmp_path)
    assert corpus.read(target, tmp_path) == (b"", b'"', b"\0\xff\n")


def test_an_input_is_kept_for_what_nothing_shorter_reaches():
    """And for nothing that the samples reach, nor beyond the bytes that there are."""
    target = TARGETS["proc, limits of a process"]
    unlimited = b"Max locked memory  unlimited  unlimited  bytes\n"
    inputs = (unlimited + b"y", unlimited, target.samples[0], b"x\n" + unlimited, b"x")
    assert corpus.chosen(target, inputs) == (b"x",)
    assert corpus.chosen(target, inputs, most=0) == ()


RUN = """
import sys
from tests.fuzz import __main__ as fuzz, table, target
read = lambda data: 1 // (len(data) - 3)
table.TARGETS |= {"planted": target.FuzzTarget("planted", read, (b"ab",))}
fuzz.main(sys.argv[1:])
"""


def test_targets_are_fed_and_a_planted_defect_is_found():
    """Each has a row with what was reached; a defect is told with its bytes, the exit code is 1."""
    names = ("uevent", "quantity", "planted")
    words = [word for name in names for word in ("--target", name)]
    run = subprocess.run(
        [sys.executable, "-c", RUN, *words, "--inputs", "500", "--seed", "5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    head, first, second, third, defect, data, last = run.stdout.splitlines()
    assert (run.returncode, run.stderr) == (1, "")
    assert head.split() == ["target", "inputs", "features", "time", "defects"]
    for row, name, defects in zip((first, second, third), names, "001", strict=True):
        assert row.split()[0] == name
        assert row.split()[-1] == defects
    assert "500" in first
    assert int(first.split()[2]) > 3
    assert defect.startswith("  ZeroDivisionError at ")
    assert len(ast.literal_eval(data.strip())) == 3
    assert last == "1,500 inputs, 1 defect"


def test_an_unknown_target_is_refused():
    assert table.chosen(()) == tuple(TARGETS.values())
    assert table.chosen(("uevent",)) == (TARGETS["uevent"],)
    with pytest.raises(Refused, match="there is no target 'nobody'"):
        table.chosen(("uevent", "nobody"))
