"""The API server's audit log in a lab: which rights were used, by whom, and what was refused.

kube_rdma_tools/rights compares it with what roles grant. So it has requests of programs in pods and
of people with roles. It has metadata alone: the API server itself writes by which role it allowed
each. Left out are the lab's admin, nodes, Kubernetes' own programs and other accounts of
kube-system: they send most requests. So are all paths that are no resources, such as /readyz. The
API server's rotation bounds the log (k8s.io/apiserver, apis/audit/v1 and its options).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kube_rdma_lab import dns

LOG = "logs/audit.log"
MEGABYTES, OLDER_FILES = 20, 4
# kube-rdma's own accounts in kube-system. All others there are left out (_NOBODY): the controller
# manager has one for each of its loops.
_OWN_THERE = tuple(
    f"system:serviceaccount:kube-system:kube-rdma-{name}"
    for name in ("agent", "controller", "operator")
)
_NOBODY = {
    "users": [
        "system:apiserver",
        "system:kube-proxy",
        "system:kube-scheduler",
        "system:kube-controller-manager",
        dns.USER,
    ],
    "userGroups": ["system:masters", "system:nodes", "system:serviceaccounts:kube-system"],
}


def policy() -> dict[str, Any]:
    """Return the API server's audit policy, whose first rule that fits a request applies.

    A watch and an exec are logged when they begin, for they may never end.
    """
    left_out = [{"level": "None", key: names} for key, names in _NOBODY.items()]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "Metadata", "users": list(_OWN_THERE)},
            *left_out,
            {"level": "Metadata"},
        ],
    }


def options(state: Path) -> list[str | Path]:
    """Write the policy into the lab's folder; return the API server's options for it."""
    file = state / "audit-policy.json"
    file.write_text(json.dumps(policy()))
    return [
        f"--audit-policy-file={file}",
        f"--audit-log-path={state / LOG}",
        f"--audit-log-maxsize={MEGABYTES}",
        f"--audit-log-maxbackup={OLDER_FILES}",
    ]
