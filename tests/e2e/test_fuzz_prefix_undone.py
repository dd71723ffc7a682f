"""The fuzzer, where one part of prefix reuse is undone: a wrong token, or a page that is lost."""

import pytest

from mstar_core.resources.kv.table import PageTable
from mstar_core.resources.shared import Kept
from mstar_core.resources.state.snapshots import Snapshots
from mstar_core.testing import fuzz
from mstar_core.testing.fuzz import LIFE, FuzzFailure, fuzz_ledger
from mstar_core.testing.schedules import Limits, draw_setup


def begin_with_the_slots_leftovers(patch):
    restore = Snapshots.restore

    def no_copy(snapshots, handles_B, slots_B, number):
        restore(snapshots, handles_B, slots_B, number)

    patch(Snapshots, "restore", no_copy)


def share_without_owning(patch):
    adopt = PageTable.adopt

    def adopted(table, handle, pages):
        adopt(table, handle, pages)
        table._owners_P[pages] -= 1

    patch(PageTable, "adopt", adopted)


def keep_the_key_of_what_is_taken_anew(patch):
    patch(Kept, "take", lambda kept, count: kept.pool.take(count))


def snapshot_one_token_late(patch):
    keep = Snapshots.keep

    def kept(snapshots, handles_B, lengths_B, slots_B, number):
        return keep(snapshots, handles_B, lengths_B - 1, slots_B, number)

    patch(Snapshots, "keep", kept)


UNDONE = {
    begin_with_the_slots_leftovers: ": tokens [",
    share_without_owning: "not given back",
    keep_the_key_of_what_is_taken_anew: ": tokens [",
    snapshot_one_token_late: ": tokens [",
}


def lives():
    """Those of the first hundred that reuse prefixes."""
    return (n for n in range(100) if draw_setup(n, Limits()).prefix_cache == "auto")


@pytest.mark.parametrize("undo", UNDONE, ids=lambda undo: undo.__name__)
def test_the_fuzzer_finds_what_is_undone(monkeypatch, tmp_path, undo):
    monkeypatch.setattr(fuzz, "shrink", lambda failure, subject: failure)
    undo(monkeypatch.setattr)
    found = ""
    for life in lives():
        try:
            fuzz_ledger(range(life * LIFE, (life + 1) * LIFE), tmp_path)
        except FuzzFailure as failure:
            found = str(failure)
            break
    assert UNDONE[undo] in found
