"""Writes plans and verdicts as texts of annotations, which are JSON, and reads them.

A pod of an installation without the policies may have any text there.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import replace
from kube_base.plain_text import plain
from kube_rdma.model.preflight import MOST_PLAN, GangPlan, GangVerdict

_MOST_VERDICT, _MOST_WHY = 4_000, 1_000  # characters


def plan_text(plan: GangPlan) -> str:
    """Return a plan as a text."""
    return msgspec.json.encode(plan).decode()


def read_plan(text: str | None) -> GangPlan | None:
    """Return the plan of a text; None if it is none, or longer than plans are."""
    with suppress(Undecodable):
        return decoded(text or "", GangPlan, most=MOST_PLAN)
    return None


def verdict_text(verdict: GangVerdict) -> str:
    """Return a verdict as a text."""
    return msgspec.json.encode(replace(verdict, why=plain(verdict.why)[:_MOST_WHY])).decode()


def read_verdict(text: str | None) -> GangVerdict | None:
    """Return the verdict of a text; None if it is none, or longer than verdicts are."""
    with suppress(Undecodable):
        verdict = decoded(text or "", GangVerdict, most=_MOST_VERDICT)
        return replace(verdict, why=plain(verdict.why))
    return None
