"""Every reader of foreign bytes, once: what `make fuzz` runs, and whose corpora the tests replay.

It joins the tables of this folder with the lists of tests/kit, whose readers have one sample each.
Whoever adds a reader of JSON adds it there (tests/house/test_foreign_json.py finds one that has no
line); all others are added to the table of the neighbour that writes the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_base.errors import Refused
from tests.fuzz.kernel import KERNEL
from tests.fuzz.kubelet import KUBELET
from tests.fuzz.others import OTHERS
from tests.fuzz.records import RECORD_TARGETS
from tests.fuzz.target import FuzzTarget
from tests.kit.foreign_files import FILE_PARSERS
from tests.kit.foreign_parsers import PARSERS, text_of
from tests.kit.foreign_texts import TEXT_PARSERS

_KIT = PARSERS | TEXT_PARSERS | FILE_PARSERS

TARGETS: Mapping[str, FuzzTarget] = {
    target.name: target
    for target in (
        *KERNEL,
        *KUBELET,
        *RECORD_TARGETS,
        *OTHERS,
        *(FuzzTarget(name, read, (text_of(sample),)) for name, (sample, read) in _KIT.items()),
    )
}
"""By name, as `--target` has it."""


def chosen(names: Sequence[str]) -> tuple[FuzzTarget, ...]:
    """The targets of these names, all without names; raise Refused for one that there is not."""
    if unknown := [name for name in names if name not in TARGETS]:
        known = ", ".join(TARGETS)
        raise Refused(f"there is no target {unknown[0]!r}", remedy=f"Known: {known}")
    return tuple(TARGETS[name] for name in names or TARGETS)
