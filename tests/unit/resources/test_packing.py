"""Where rows lie among packed tokens."""

import numpy as np
import pytest

from mstar_core.resources.packing import leading_rows, pack, positions
from mstar_core.testing.resources import decode_lease, mixed_lease, prefill_lease, step_of


def test_an_eager_step_is_packed_without_padding():
    at = pack(step_of(5, 6, 7, spans=[3, 0, 2]), None)
    assert at.starts_B.tolist() == [0, 3, 3]
    assert at.lens_B.tolist() == [3, 0, 2]
    assert at.row_T.tolist() == [0, 0, 0, 2, 2]
    assert at.col_T.tolist() == [0, 1, 2, 0, 1]
    assert (at.max_row_tokens, at.decode) == (3, 0)


def test_an_eager_step_of_one_token_each_is_a_decode_step():
    at = pack(step_of(5, 6), None)
    assert (at.decode, at.max_row_tokens) == (1, 1)
    assert at.last_B.tolist() == [0, 1]


def test_one_padding_row_owns_the_unused_tokens_of_a_bucket():
    at = pack(step_of(1, 2, spans=[3, 2]), prefill_lease(4, 8))
    assert at.lens_B.tolist() == [3, 2, 3, 0]
    assert at.row_T.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert at.col_T.tolist() == [0, 1, 2, 0, 1, 0, 1, 2]
    assert at.starts_B.tolist() == [0, 3, 5, 8]
    assert at.last_B.tolist() == [2, 4, 7, 7]
    assert (at.max_row_tokens, at.decode) == (8, 0)


def test_a_full_bucket_has_no_padding_row():
    at = pack(step_of(1, 2, spans=[5, 3]), prefill_lease(2, 8))
    assert at.lens_B.tolist() == [5, 3]


def test_one_token_rows_in_a_packed_bucket_do_not_make_it_a_decode_bucket():
    at = pack(step_of(1, 2), prefill_lease(2, 2))
    assert (at.decode, at.max_row_tokens) == (0, 2)


def test_every_row_of_a_decode_bucket_owns_one_token():
    at = pack(step_of(1), decode_lease(3))
    assert at.lens_B.tolist() == [1, 1, 1]
    assert at.row_T.tolist() == [0, 1, 2]
    assert (at.max_row_tokens, at.decode) == (1, 1)


def test_values_are_padded_to_the_rows_and_tokens_of_the_bucket():
    at = pack(step_of(1, 2, spans=[3, 2]), prefill_lease(4, 8))
    assert at.rows(np.array([7, 8]), np.float32, fill=1).tolist() == [7, 8, 1, 1]
    assert at.tokens(np.arange(1, 6)).tolist() == [1, 2, 3, 4, 5, 0, 0, 0]


def test_positions_count_on_from_each_rows_length():
    got = positions(np.array([4, 9, 0]), np.array([2, 0, 3]))
    assert got.tolist() == [4, 5, 0, 1, 2]
    assert positions(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize(("free", "fit"), [(0, 1), (1, 1), (2, 2), (4, 2), (5, 4), (9, 4)])
def test_leading_rows_fit_in_order(free, fit):
    assert leading_rows(np.array([0, 2, 3, 0]), free) == fit


@pytest.mark.parametrize(
    ("spans", "lead"),
    [([1, 1, 5], 2), ([1, 5, 1], 1), ([5, 1, 1], 0), ([1, 0, 4], 1), ([1, 1, 1, 3], 3)],
)
def test_the_lead_of_an_eager_mixed_step_is_its_leading_run_of_one_token_rows(spans, lead):
    at = pack(step_of(*range(len(spans)), spans=spans, split=True), None)
    assert (at.num_lead, at.lead_rows) == (lead, lead)
    assert (at.num_lead_1 is None) == (lead == 0)


def test_a_step_that_is_not_split_has_no_lead():
    at = pack(step_of(1, 2, spans=[1, 5]), None)
    assert (at.num_lead_1, at.lead_rows) == (None, 0)
    at = pack(step_of(1, 2, spans=[1, 5]), prefill_lease(4, 8))
    assert (at.num_lead_1, at.lead_rows) == (None, 0)


def test_the_bound_of_the_lead_is_the_buckets_and_its_length_the_steps():
    for spans, lead in (([1, 4], 1), ([1, 1, 1, 1], 3), ([4], 0), ([], 0)):
        at = pack(step_of(*range(len(spans)), spans=spans, split=True), mixed_lease(6, 8, 3))
        assert (at.num_lead_1.tolist(), at.num_lead_1.dtype) == ([lead], np.int32)
        assert (at.lead_rows, at.decode, at.max_row_tokens) == (3, 0, 8)


def test_a_padding_row_is_never_of_the_lead():
    """GDN-05: neither one that owns a single token, nor one of a bucket's first rows."""
    at = pack(step_of(1, 2, spans=[1, 1], split=True), mixed_lease(5, 3, 3))
    assert at.lens_B.tolist() == [1, 1, 1, 0, 0]
    assert at.num_lead == 2
