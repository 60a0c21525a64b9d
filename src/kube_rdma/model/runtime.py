"""The container runtime of a node, as it describes itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Runtime:
    """What makes containers here.

    `cdi`: whether it injects CDI devices, None when it does not say. `cdi_dirs`: where it looks for
    their files, none when it does not say.
    """

    name: str  # containerd, cri-o
    version: str  # as the runtime writes it: v2.4.2, 1.7.13~ds1
    cdi: bool | None = None
    cdi_dirs: tuple[str, ...] = ()
