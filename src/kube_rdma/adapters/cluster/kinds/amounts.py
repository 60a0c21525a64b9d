"""Amounts in the objects of claims: quantities as their writers have them.

The API server checks those of its own fields; what stands in place of one may be anything. Read by
claim_objects.py and resource_claim.py.
"""

from __future__ import annotations

from fractions import Fraction

from kube_base.errors import Refused
from kube_rdma.model.kubernetes import quantity


def amount(text: str | float) -> Fraction:
    """The number that a quantity is; raise Refused for what is none."""
    try:
        return quantity(str(text))
    except ValueError as error:
        raise Refused(
            f"{text!r:.80} is no quantity", remedy="Ask the owner of the driver or of the claim"
        ) from error
