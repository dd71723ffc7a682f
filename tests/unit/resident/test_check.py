"""What the row check compares, and what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mstar_core.resident.check import PREFIX, Expected, probes
from mstar_core.resident.layout import RowLayout
from mstar_core.resources.resident import Column
from mstar_core.step import Plan, Staged, plan_class


@plan_class
class TwoFields(Plan):
    pages_BW: Staged
    length_B: Staged
    bound: int = 1


HANDLES = np.array([2, 0])


@pytest.fixture
def layout():
    """Two pools: ``kv`` appends, ``cross`` is only read."""
    length, pages, held = (
        np.array([9, 5, 7]),
        np.array([[3, 4], [5, 0], [6, 0]]),
        np.array([2, 1, 1]),
    )
    cross = np.array([4, 4, 4])
    return RowLayout.of(
        {
            "kv": [
                Column(name="length", host=length, advances=True),
                Column(name="pages", host=pages, held=held),
            ],
            "cross": [Column(name="length", host=cross, advances=True)],
        }
    )


@pytest.fixture
def expected(layout):
    plan = TwoFields(pages_BW=np.array([[6, 0], [3, 4], [0, 0]]), length_B=np.array([7, 9, 0]))
    return Expected.of(layout, HANDLES, layout.advance({"kv": 1, "cross": 0}), {"kv": plan})


@pytest.fixture
def found():
    """What a right device reports of the step, padded to three rows; unused cells are dirty."""
    return {
        f"{PREFIX}rows": np.array([[8, 4, 6, 99], [10, 4, 3, 4], [0, 0, 0, 0]]),
        f"{PREFIX}row 0": np.zeros(4, np.int64),
        f"{PREFIX}kv.pages_BW": np.array([[6, 99], [3, 4], [7, 7]]),
        f"{PREFIX}kv.length_B": np.array([7, 9, 5]),
        "ids": np.array([1, 2, 3]),
    }


def differences(expected, found):
    return [(d.where, d.row, d.got, d.want, d.count) for d in expected.differences(found)]


def test_a_right_step_shows_no_difference_whatever_padding_and_unused_cells_hold(expected, found):
    assert differences(expected, found) == []
    assert expected.num_rows == 2


@pytest.mark.parametrize(
    ("name", "at", "told"),
    [
        ("rows", (1, 0), ("kv.length", 1, -5, 10, 1)),
        ("rows", (0, 1), ("cross.length", 0, -5, 4, 1)),
        ("rows", (1, 3), ("kv.pages[1]", 1, -5, 4, 1)),
        ("row 0", (2,), ("store[2]", -1, -5, 0, 1)),
        ("kv.pages_BW", (1, 1), ("plan kv.pages_BW[1]", 1, -5, 4, 1)),
        ("kv.length_B", (0,), ("plan kv.length_B", 0, -5, 7, 1)),
    ],
)
def test_a_cell_that_differs_is_named_with_its_row(expected, found, name, at, told):
    found[PREFIX + name][at] = -5
    assert differences(expected, found) == [told]


def test_a_column_that_differs_in_many_rows_is_told_once_with_the_count(expected, found):
    found[f"{PREFIX}rows"][:, 0] += 1
    assert differences(expected, found) == [("kv.length", 0, 9, 8, 2)]


def test_a_field_that_one_side_lacks_is_a_difference(expected, found):
    del found[f"{PREFIX}kv.length_B"]
    assert differences(expected, found) == [("plan kv.length_B", 0, "absent", "present", 1)]


def test_what_is_expected_does_not_follow_the_host_columns(expected, layout, found):
    for _, column in (*layout.narrow, *layout.spans):
        column.host[:] = 0
    assert differences(expected, found) == []


def test_the_probes_are_the_rows_of_the_step_row_zero_and_every_tensor_of_the_plans():
    store_RC = torch.arange(12).view(4, 3)
    plan = TwoFields(pages_BW=torch.ones(2, 2), length_B=store_RC[1:3, 0])
    read = probes(store_RC, torch.tensor([2, 0]), {"kv": plan})
    assert set(read) == {
        f"{PREFIX}{name}" for name in ("rows", "row 0", "kv.pages_BW", "kv.length_B")
    }
    assert read[f"{PREFIX}rows"].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert read[f"{PREFIX}row 0"].tolist() == [0, 1, 2]
    assert read[f"{PREFIX}kv.length_B"].tolist() == [3, 6]
