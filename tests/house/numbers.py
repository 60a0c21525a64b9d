"""What the house comes to, in numbers: `make house`. The rules beside it say what must not be.

Lines are those of files that people write, with comments and docstrings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from .test_names import PACKAGES, banned, modules, twins

WIDTH = 44
PRODUCT = "src/kube_rdma"


def rows() -> Iterator[tuple[str, str]]:
    """What is counted, and the number."""
    for package in PACKAGES:
        files = modules(package)
        yield f"lines of {package}", f"{sum(text.count(chr(10)) for _, text in files):,}"
    product = modules(PRODUCT)
    longest, text = max(product, key=lambda file: file[1].count("\n"))
    yield "longest file of the product", f"{text.count(chr(10))} {PurePath(longest).name}"
    folders = Counter(str(PurePath(name).parent) for name, _ in product)
    fullest, count = folders.most_common(1)[0]
    yield "most files in one folder", f"{count} {PurePath(fullest).relative_to(PRODUCT)}"
    yield "class names with two meanings", str(len(list(twins(modules("src")))))
    names = (sentence for name, text in modules(*PACKAGES) for sentence in banned(name, text))
    yield "names that say nothing", str(len(list(names)))


if __name__ == "__main__":
    for words, number in rows():
        print(f"{words:<{WIDTH}}{number}")
