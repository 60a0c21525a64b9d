"""RDMA cards as a scheduled, attached, configured and verified resource of Kubernetes.

Each folder is one capability: its documents, rules, views and what runs. They stand on model
(values), adapters (neighbours) and lib (what several share). docs/story.md follows a card through
them; pyproject.toml has their order, and tests hold it: a folder imports only those below it, but
for one exception there.
"""

__version__ = "0.3.0"
