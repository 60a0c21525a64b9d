"""Which names the kubelet takes for an extended resource: ``rdma/hca``.

One rule for documents, which are refused before the kubelet has to, and for the kubelet of tests.
From IsExtendedResourceName in pkg/apis/core/v1/helper of Kubernetes: the prefix must be a DNS
subdomain even behind the ``requests.`` that quotas put before it, and may not be a native one.
"""

from __future__ import annotations

import re

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
PREFIX = (
    r"(?!requests\.)(?![^/]*kubernetes\.io(?:/|$))(?=[^/]{1,244}(?:/|$))"
    rf"{_LABEL}(?:\.{_LABEL})*"
)
NAME = "(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
RESOURCE = f"{PREFIX}/{NAME}"  # patterns for the whole of a text

_RESOURCE = re.compile(RESOURCE)


def is_extended_resource(name: str) -> bool:
    """Whether the kubelet takes `name` for a resource of a plugin."""
    return _RESOURCE.fullmatch(name) is not None
