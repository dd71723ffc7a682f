"""The cells of one row: narrow columns, then a span of pages for each pool."""

import numpy as np
import pytest
import torch

from mstar_core.resident import RowLayout
from mstar_core.resident.writes import joined
from mstar_core.resources.resident import Column


def narrow(name, *values, advances=False):
    return Column(name=name, host=np.asarray(values, np.int32), advances=advances)


def span(name, rows, held):
    return Column(name=name, host=np.asarray(rows, np.int32), held=np.asarray(held))


@pytest.fixture
def layout():
    """Two pools, a position and a carry row over three handles."""
    return RowLayout.of(
        {
            "kv": (
                narrow("length", 7, 9, 0, advances=True),
                span("pages", [[1, 2, 0], [3, 4, 0], [0, 0, 0]], [2, 2, 0]),
            ),
            "cross_kv": (
                narrow("length", 30, 31, 0, advances=True),
                span("pages", [[5, 6], [7, 0], [0, 0]], [2, 1, 0]),
            ),
            "position": (narrow("length", 7, 9, 0, advances=True), narrow("offset", -2, 0, 0)),
        }
    )


def test_narrow_cells_come_first_then_a_span_for_each_pool(layout):
    assert layout.start == {
        ("kv", "length"): 0,
        ("cross_kv", "length"): 1,
        ("position", "length"): 2,
        ("position", "offset"): 3,
        ("kv", "pages"): 4,
        ("cross_kv", "pages"): 7,
    }
    assert (layout.num_narrow, layout.num_cells) == (4, 9)


def test_a_span_is_as_wide_as_its_block_table_and_other_columns_are_one_cell(layout):
    widths = [column.width for _, column in (*layout.narrow, *layout.spans)]
    assert widths == [1, 1, 1, 1, 3, 2]


def test_the_truth_of_a_row_is_read_from_the_hosts_own_arrays(layout):
    handles_B = np.array([1, 0])
    assert layout.truth(handles_B).tolist() == [[9, 31, 9, 0], [7, 30, 7, -2]]
    assert layout.truth(handles_B).dtype == np.int64
    layout.narrow[0][1].host[1] += 1
    assert layout.truth(handles_B)[0, 0] == 10


def test_each_pool_says_how_many_of_its_cells_are_in_use(layout):
    assert layout.held(np.array([1, 2, 0])).tolist() == [[2, 1], [0, 0], [2, 2]]


def test_lengths_advance_by_the_span_of_their_own_key_and_constants_stay(layout):
    spans = {"kv": 1, "cross_kv": 0, "position": 1}
    assert layout.advance(spans).tolist() == [1, 0, 1, 0]
    assert layout.advance({"position": 1}).tolist() == [0, 0, 1, 0]


def test_gathered_rows_are_taken_apart_by_key_and_name(layout):
    rows = torch.arange(18).view(2, 9)
    cells = layout.cells(rows)
    assert cells["kv"]["length"].tolist() == [0, 9]
    assert cells["cross_kv"]["length"].tolist() == [1, 10]
    assert cells["position"]["offset"].tolist() == [3, 12]
    assert cells["kv"]["pages"].tolist() == [[4, 5, 6], [13, 14, 15]]
    assert cells["cross_kv"]["pages"].tolist() == [[7, 8], [16, 17]]


def test_a_node_without_columns_has_an_empty_row():
    layout = RowLayout.of({"attention": ()})
    assert layout.num_cells == 0
    assert layout.truth(np.array([0])).shape == (1, 0)
    assert layout.held(np.array([0])).shape == (1, 0)


def test_a_run_that_starts_where_the_last_one_ends_joins_it():
    runs = [(10, np.array([1, 2])), (12, np.array([3])), (20, np.array([4])), (13, np.array([5]))]
    assert [(at, cells.tolist()) for at, cells in joined(runs)] == [
        (10, [1, 2, 3]),
        (20, [4]),
        (13, [5]),
    ]


def test_a_run_of_no_cells_is_not_sent():
    none = np.zeros(0, np.int64)
    assert joined([(4, none), (9, np.array([1])), (30, none)])[0][0] == 9
    assert len(joined([(4, none), (9, np.array([1])), (30, none)])) == 1
