"""Measures which cards claim templates get on example machines, and writes a table of it.

    machine's tree ─► board ─► allocator, until the node is full ─► measure ─► page

`python -m kube_rdma_tools.boards .` writes the table of docs/claims.md anew.
tests/lab/native/test_boards.py compares that table with a new one.
"""
