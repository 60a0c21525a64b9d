"""RDMA cards as a scheduled, attached, configured and verified resource of Kubernetes.

Read the folders from top to bottom and they are a sentence: what is true (model), what should
follow (api, rules, views), who we speak with (adapters), what runs (programs).
"""

__version__ = "0.1.0"
