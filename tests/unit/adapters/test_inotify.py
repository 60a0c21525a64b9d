"""A mounted file that is swapped, renamed over, written in place: every change wakes."""

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.inotify import watching_file


def swap(folder, text):
    """Renew as the kubelet does: a new folder, and the link ..data moved onto it."""
    fresh = folder / f"..{text}"
    fresh.mkdir()
    (fresh / "config.json").write_text(text)
    link = folder / "..data_tmp"
    link.symlink_to(fresh.name)
    link.rename(folder / "..data")


@pytest.fixture
def mounted(tmp_path):
    swap(tmp_path, "old")
    (tmp_path / "config.json").symlink_to("..data/config.json")
    return tmp_path / "config.json"


@pytest.mark.parametrize("how", ["kubelet", "rename", "in place", "removed"])
async def test_each_way_of_changing_wakes(mounted, how):
    with watching_file(mounted) as changes:
        if how == "kubelet":
            swap(mounted.parent, "new")
        elif how == "rename":
            (mounted.parent / "x").write_text("new")
            (mounted.parent / "x").rename(mounted)
        elif how == "in place":
            mounted.unlink()
            mounted.write_text("new")
        else:
            mounted.unlink()
        await anext(changes)


async def test_a_folder_that_goes_ends_it(mounted):
    with watching_file(mounted) as changes:
        mounted.parent.rename(mounted.parent.with_name("elsewhere"))
        with pytest.raises(Unavailable, match="removed or moved"):
            await anext(changes)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Refused, match="cannot be watched"), watching_file(tmp_path / "no" / "file"):
        pass
