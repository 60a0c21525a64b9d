"""Connects to the API server as kube-rdma, the field manager of the fields that it writes."""

from __future__ import annotations

from functools import partial

import kube_client.connect
from kube_rdma import __version__

connect = partial(kube_client.connect.connect, user_agent=f"kube-rdma/{__version__}")
"""Connects as kube_client.connect.connect does, and raises the same errors."""
