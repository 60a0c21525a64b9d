"""Whether an object still says all that kube-rdma wrote into it.

The API server fills in defaults and others add fields of their own; what was written must be there
unchanged. So a look at what is stored tells, and nothing is written when nothing differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def holds(stored: object, wanted: object) -> bool:
    """Whether `stored` has every field of `wanted`; lists must have the same length and order."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            holds(stored.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return (
            isinstance(stored, Sequence)
            and len(stored) == len(wanted)
            and all(map(holds, stored, wanted))
        )
    return stored == wanted
