"""Adds a machine to tests/data/trees, or writes the tables of its page anew.

    python -m kube_rdma_tools.machines NAME FOLDER    # of `kube-rdma devices --record FOLDER`
    python -m kube_rdma_tools.machines NAME           # of the tree.txt that is there

The tables say what the survey shows. Whoever adds the machine compares them with the hardware: what
is wrong there has to be mended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kube_base.errors import KubeError, Refused
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.hardware.machines import TEXT, WELL
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma_tools.machines.tables import HEADING, picture
from kube_rdma_tools.machines.text import text_of_folder

PLACE = Path("tests/data", WELL)
PAGE = "SOURCE.md"
_SKELETON = """\
# {name}

WHICH CARD, IN WHICH HOST; recorded with `kube-rdma devices --record`, kernel VERSION, driver
VERSION. WHAT IS SPECIAL, AND WHAT WAS WRONG.

| what | where the format comes from (Linux) |
|---|---|
| FILE OR FIELD | FILE AND FUNCTION OF THE KERNEL THAT WRITES IT |

"""


def add(name: str, folder: Path | None, place: Path = PLACE) -> str:
    """Write a machine's page, and first its text if a recorded folder is given; return a message.

    Raise Refused for an unusable folder, a new machine's name that exists, or a missing tree.txt.
    """
    machine = place / name
    said = [f"{machine / PAGE}: correct what the tables show."]
    if folder is not None:
        if machine.exists():
            raise Refused(f"{machine} exists", remedy="Give another name, or remove it")
        if not (folder / "class").is_dir():
            raise Refused(
                f"{folder} is no recorded node",
                remedy="Give a folder that `kube-rdma devices --record` wrote",
            )
        text, left_out = text_of_folder(folder)
        machine.mkdir(parents=True)
        (machine / TEXT).write_text(f"# See {PAGE}.\n{text}", encoding="utf-8")
        said += [f"Left out, for no line can name it: {path!r}" for path in left_out]
    elif not (machine / TEXT).exists():
        raise Refused(f"{machine / TEXT} is missing", remedy="Write it, or give a recorded folder")
    page = machine / PAGE
    head = page.read_text(encoding="utf-8") if page.exists() else _SKELETON.format(name=name)
    survey = survey_at(RecordedText(name, (machine / TEXT).read_text(encoding="utf-8")))
    whole = f"{head.partition(HEADING)[0]}{HEADING}\n{picture(survey)}"
    page.write_text(whole, encoding="utf-8")
    return "\n".join(said)


if __name__ == "__main__":
    try:
        name, *rest = sys.argv[1:]
        print(add(name, Path(rest[0]) if rest else None))
    except (KubeError, ValueError) as error:
        sys.exit(f"error: {error}")
