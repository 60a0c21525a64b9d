"""The file of neighbours: what an agent writes is read, and what is garbled is passed over."""

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.files.neighbours import read_neighbours, write_neighbours

NAMES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=30)


@given(st.dictionaries(NAMES, NAMES, max_size=5))
def test_what_is_written_is_read(tmp_path_factory, neighbours):
    file = tmp_path_factory.getbasetemp() / "neighbours"
    write_neighbours(neighbours, file)
    assert read_neighbours(file) == neighbours


def test_a_node_without_an_agent_has_none(tmp_path):
    assert read_neighbours(tmp_path / "neighbours") == {}


def test_a_garbled_file_has_none(tmp_path):
    file = tmp_path / "neighbours"
    for data in (b"", b"{", b"[]", b'{"mlx5_0/1": 1}', b'{"\xff": "leaf-1"}'):
        file.write_bytes(data)
        assert read_neighbours(file) == {}
