"""Shows an installation: its objects as YAML for kubectl, and what it does to a cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import yaml

from kube_rdma.lib import page
from kube_rdma.model.install import Act, InstallPlan

_WIDTH = 100


class _Dumper(yaml.CSafeDumper):  # libyaml: the same text in a sixth of the time
    """A YAML writer that keeps texts of several lines as blocks, so that they stay readable."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def manifests(objects: Iterable[dict[str, Any]]) -> str:
    """Return all objects as YAML text, separated by lines of dashes."""
    plain = json.loads(json.dumps(list(objects)))  # no shared parts: YAML would write references
    is_printable = json.dumps(plain, ensure_ascii=False).isprintable()
    return yaml.dump_all(
        plain, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=is_printable
    )


# What `kube-rdma install` finds, makes and changes.

_HEAD = ("KIND", *(act.upper() for act in Act))


def plan_page(plan: InstallPlan, *, is_done: bool = False) -> page.Page:
    """Return the page of an installation: what was or will be written, and what to know first."""
    release, count = plan.sight.release, len(plan.sight.nodes)
    said = "Installed" if is_done else "Nothing was changed yet"
    where = f"preset {release.preset} in namespace {release.namespace}, release {release.name}"
    has, lacks = (
        ", ".join(kind for kind, there in release.served.items() if there is wanted)
        for wanted in (True, False)
    )
    has = f"{has or 'no policies'}{lacks and f'; it lacks {lacks}'}"
    facts = [f"✓ Kubernetes {plan.sight.version} has {has}."]
    if release.chosen:
        facts.append(f"✓ {plan.served} of {page.counted(count, 'node')} get an agent.")
    healthy = (page.Sentence(fact, "  ", page.PageState.HEALTHY) for fact in facts)
    acts = Counter((one["kind"], act) for act, one in plan.acts)
    rows = tuple(
        page.PageRow((kind, *(str(acts[kind, act] or "-") for act in Act)))
        for kind in dict.fromkeys(kind for kind, _ in acts)
    )
    return (
        (page.Sentence(f"{said if plan.wanted else 'Nothing to change'}: {where}."),),
        () if is_done else tuple(healthy),
        (page.PageTable(_HEAD, rows, right=(1, 2, 3), ranked=True),) if plan.wanted else (),
        tuple(page.sentences(plan.findings)),
        tuple(page.not_seen(plan.sight.not_seen, "read")),
    )
