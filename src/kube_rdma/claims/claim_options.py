"""The options of `kube-rdma claim` as a wish: names and rates have the forms of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from kube_base.errors import Refused
from kube_rdma.attach.documents.networks import OBJECT_NAME
from kube_rdma.claims.parameters import NETWORK
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.words import LABEL, TextForm
from kube_rdma.model.claims.claim import NEWEST, ClaimWish, Reach

_RATE = TextForm("[1-9][0-9]{0,4}G", "a rate in whole gigabits per second", "100G")
_VERSION = re.compile(r"v?1\.(\d{1,2})(\.\d+.*)?")


def wish_of(options: Mapping[str, Any]) -> ClaimWish:
    """What the options of the command mean; raise Refused with all that have a wrong form."""
    forms = {
        "name": LABEL,
        "gpu_class": OBJECT_NAME,
        "card_class": OBJECT_NAME,
        "network": NETWORK,
        "bandwidth": _RATE,
    }
    checks: dict[str, Callable[[str], object]] = {name: form.check for name, form in forms.items()}
    faults: list[Refused] = []
    for name, check in checks.items():
        optional = name in ("card_class", "network", "bandwidth")
        if options[name] or not optional:
            faults += _faults(name, check, options[name])
    version = options["version"]
    match = _VERSION.fullmatch(version)
    if version and not match:
        problem = f"{shown(version)} is not a version of Kubernetes"
        where = "--kubernetes-version"
        faults.append(Refused(problem, remedy='Write it like "1.36"', where=where))
    within, near = options["within"], options["near"]
    if within and not near:
        problem = "it says how near a card has to be, and nothing asks for a near one"
        faults.append(Refused(problem, remedy="Add --near", where="--within"))
    if faults:
        raise Refused.all(faults)
    return ClaimWish(
        name=options["name"],
        cards=options["cards"],
        rails=options["rails"],
        gpus=options["gpus"],
        reach=Reach(within or Reach.ANY) if near else None,
        shared=options["shared"],
        gbps=int(options["bandwidth"][:-1]) if options["bandwidth"] else None,
        card_class=options["card_class"],
        gpu_class=options["gpu_class"],
        network=options["network"],
        minor=int(match[1]) if match else NEWEST,
    )


def _faults(name: str, check: Callable[[str], object], text: str) -> list[Refused]:
    option = "--class" if name == "card_class" else f"--{name.replace('_', '-')}"
    try:
        check(text)
    except PydanticCustomError as error:
        slips = (error.context or {})["slips"]
        return [Refused(one.problem, remedy=one.remedy, where=option) for one in slips]
    return []
