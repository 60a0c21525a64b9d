"""Measures which cards claim templates get on example machines, and writes docs/boards.md of it.

    machine's tree ─► board ─► allocator, until the node is full ─► measure ─► page

`python -m kube_rdma_tools.boards .` writes the tables anew. tests/lab/native/test_boards.py
compares them with what it would write.
"""
