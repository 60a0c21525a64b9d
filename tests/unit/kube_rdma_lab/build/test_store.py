"""The store: whole artifacts or none, one builder at a time, nothing pruned that is in use."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import BuildEvent, Store, key_of


def write(text: str):
    def make(folder: Path, _: Shell) -> None:
        (folder / "text").write_text(text)

    return make


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def make_versions(root: Path, count: int) -> list[Path]:
    with Store(root) as store:
        paths = [store.get("part", {"n": str(n)}, write(str(n))) for n in range(count)]
    for position, path in enumerate(paths):
        age(path, 1000 - position)
    return paths


@given(st.dictionaries(st.text(), st.text(), min_size=1))
def test_key_depends_on_content_only(inputs):
    """Order never changes a key, any other change does."""
    assert key_of(dict(reversed(inputs.items()))) == key_of(inputs)
    name = next(iter(inputs))
    assert key_of({**inputs, name: inputs[name] + "x"}) != key_of(inputs)
    assert key_of({**inputs, name + "\0": ""}) != key_of(inputs)


def test_second_get_makes_nothing(tmp_path):
    """An artifact is made once, reported as built and then as cached, and tells its inputs."""
    events: list[BuildEvent] = []
    with Store(tmp_path, events.append) as store:
        first = store.get("part", {"a": "1"}, write("hello"))
        second = store.get("part", {"a": "1"}, write("never"))
    assert first == second
    assert (first / "text").read_text() == "hello"
    assert '"a": "1"' in (first / "inputs.json").read_text()
    assert [event.state for event in events] == ["building", "built", "cached"]


def test_failed_make_leaves_nothing(tmp_path):
    """A builder that fails leaves neither an artifact nor a half one, and can be tried again."""

    def fail(folder: Path, _: Shell) -> None:
        (folder / "half").touch()
        raise Unavailable("no network")

    with Store(tmp_path) as store:
        with pytest.raises(Unavailable):
            store.get("part", {}, fail)
        assert [path.name for path in (tmp_path / "part").iterdir()] == [".lock"]
        assert (store.get("part", {}, write("now")) / "text").read_text() == "now"


def test_leftover_of_a_killed_builder_is_not_used(tmp_path):
    """What a killed builder left behind does not leak into the artifact."""
    half = tmp_path / "part" / f".{key_of({})}.new"
    half.mkdir(parents=True)
    (half / "half").touch()
    with Store(tmp_path) as store:
        path = store.get("part", {}, write("whole"))
    assert sorted(entry.name for entry in path.iterdir()) == ["inputs.json", "text"]
    assert not half.exists()


def race(root: Path, barrier, made) -> None:
    def slow(folder: Path, _: Shell) -> None:
        with made.get_lock():
            made.value += 1
        time.sleep(0.2)
        (folder / "text").write_text("whole")

    barrier.wait()
    with Store(root) as store:
        assert (store.get("part", {}, slow) / "text").read_text() == "whole"


def test_two_processes_make_one_artifact(tmp_path):
    """Of two builders that want the same artifact one makes it, the other waits for it."""
    context = multiprocessing.get_context("fork")
    barrier, made = context.Barrier(2), context.Value("i", 0)
    racers = [context.Process(target=race, args=(tmp_path, barrier, made)) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(10)
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert made.value == 1


def test_prune_spares_what_is_held(tmp_path):
    """What a running lab holds stays for as long as it runs."""
    paths = make_versions(tmp_path, 3)
    lab, builder = Store(tmp_path), Store(tmp_path)
    with lab.hold(paths[0] / "text"):
        assert builder.prune(keep=1) == [paths[1]]
    assert builder.prune(keep=1) == [paths[0]]
    assert paths[2].exists()


def test_prune_removes_leftovers_but_nothing_being_built(tmp_path):
    """The half artifact of a dead builder goes, that of a living one stays."""
    dead = tmp_path / "dead" / ".0123.new"
    dead.mkdir(parents=True)
    (tmp_path / "dead/.lock").touch()

    def prune_meanwhile(folder: Path, _: Shell) -> None:
        Store(tmp_path).prune(keep=0)
        assert folder.exists()

    with Store(tmp_path) as store:
        store.get("living", {}, prune_meanwhile)
    assert not dead.exists()


def test_open_store_protects_what_it_gave_out(tmp_path):
    """A long build cannot lose an early part to another build's pruning."""
    with Store(tmp_path) as store:
        path = store.get("part", {}, write("x"))
        assert Store(tmp_path).prune(keep=0) == []
    assert Store(tmp_path).prune(keep=0) == [path]
