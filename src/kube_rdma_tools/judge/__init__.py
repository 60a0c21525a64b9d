"""The judge of installations: would a cluster of this kind take what `kube-rdma render` prints?

installations (presets × distributions, rendered) ─┐
environments (what kinds of clusters refuse) ──────┴─► rules ─► violations ─► table, lines
                 without violations that a document asks for (by_document) ─┘

Pure Python and no cluster: tables say what a cluster admits, which nodes it has and which names are
taken. They are written from public sources, which stand beside each row. So a violation is a
reason to look, and the absence of one is no proof. `python -m kube_rdma_tools.judge` prints them.
"""
