"""Makes the text of a machine from a folder that `kube-rdma devices --record` wrote.

kube_rdma_lab/native/tree_text unpacks such texts, the product reads them in memory
(adapters/kernel/sysfs/recorded_text). A line of the text is a file, a link or an empty folder;
bytes that are no text stand there in hexadecimal. Of the whole configuration of a PCIe port only
ACS is kept, which is all that the doctor reads: the rest has serial numbers. A configuration that
is cut short is left out.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from kube_rdma.adapters.kernel.sysfs.pci_paths import acs_control
from kube_rdma.adapters.kernel.sysfs.recorded_text import TextEntry, read_entries

_SECTION = re.compile(r"(devices/.+/ports/\d+|devices/.+)/")
_CONFIGURATION = "config"


def text_of_folder(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return a recorded folder as text, and the paths that the text format cannot express."""
    return text_of(_entries(folder))


def text_of(entries: Iterable[TextEntry]) -> tuple[str, tuple[str, ...]]:
    """Return entries as text, and the paths that the text format cannot express."""
    sections: dict[str, list[str]] = {"": []}
    left_out = []
    for entry in entries:
        match = _SECTION.match(entry.path)
        head = f"[{match[1]}]\n" if match else ""
        name = entry.path.removeprefix(match[0]) if match else entry.path
        written = (line for line in _lines(name, entry) if _read(head + line) == [entry])
        if line := next(written, None):
            sections.setdefault(head, []).append(line)
        else:
            left_out.append(entry.path)
    parts = (head + "\n".join(lines) for head, lines in sections.items() if lines)
    return "\n\n".join(parts) + "\n", tuple(left_out)


def _lines(name: str, entry: TextEntry) -> Iterator[str]:
    """Yield the lines that could express an entry, the most readable first."""
    if entry.target is not None:
        yield f"{name} -> {entry.target}"
    elif entry.content is None:
        yield f"{name}/"
    else:
        text = entry.content.decode(errors="replace").removesuffix("\n")
        yield f"{name}: " + text.replace("\n", "\\n")
        yield f"{name} = {_squeezed(entry.content)}"


def _read(line: str) -> list[TextEntry]:
    try:
        return list(read_entries(line))
    except ValueError:
        return []


def _squeezed(data: bytes) -> str:
    """Return bytes as hexadecimal text, with long runs of one byte as ``00*256``."""
    runs = re.finditer(rb"(?s)((.)\2{15,})|(?:(?!(.)\3{15}).)+", data)
    return " ".join(f"{run[2].hex()}*{len(run[1])}" if run[1] else run[0].hex() for run in runs)


def _entries(folder: Path) -> Iterator[TextEntry]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield TextEntry(name, target=path.readlink().as_posix())
        elif path.is_dir():
            if not any(path.iterdir()):
                yield TextEntry(name)
        elif (content := _content(path)) is not None:
            yield TextEntry(name, content)


def _content(path: Path) -> bytes | None:
    """Return what the text keeps of a file, None for nothing."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return json.dumps(json.loads(data), ensure_ascii=True).encode() + b"\n"
    if path.name == _CONFIGURATION:
        if (control := acs_control(data)) is None:
            return None
        acs = struct.pack("<IHH", 0x0001_000D, 0, control)  # include/uapi/linux/pci_regs.h
        return (bytes(256) + acs).ljust(4096, b"\0")
    return data
