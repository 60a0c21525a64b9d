"""Records that are read beside their writer: none is locked, made or changed."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.journal.codec import BINDINGS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal, glance, glances
from kube_rdma.model.late_binding import Binding, Promise

PROMISE = Promise("n1", "rdma/hca", ("a-0",), ("a",), "kube-rdma.io/hca=a-0-n1", 1.0)


def test_records_of_one_kind_are_read_while_another_writes(tmp_path):
    folder = tmp_path / "bindings"
    folder.mkdir()
    with Journal(Folder(folder), BINDINGS) as journal:
        journal.load()
        journal.put("p", PROMISE)
        (folder / "half.json").write_text('{"kind": "promise", "data"')
        (folder / "odd.json").write_text('{"kind": "promise", "data": 7}')
        (folder / "word.json").write_text('"promise"')
        (folder / "deep.json").write_text("[" * 2000 + "]" * 2000)
        before = sorted(folder.iterdir())
        assert glances(folder, "promise", Promise) == (("p", PROMISE),)
        assert glances(folder, "binding", Binding) == ()
        assert sorted(folder.iterdir()) == before


def test_a_record_that_is_nested_too_deeply_is_told(tmp_path):
    (tmp_path / "a.json").write_text("[" * 2000 + "]" * 2000)
    with pytest.raises(Unavailable, match="is not readable"):
        glance(tmp_path, Promise)


def test_no_folder_is_no_journal(tmp_path):
    assert glances(tmp_path / "none", "promise", Promise) is None


def test_what_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="are not readable"):
        glances(tmp_path / "file", "promise", Promise)
