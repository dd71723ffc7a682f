"""Attention over padded rows: blocks of queries, and layouts."""

import torch

from mstar_core.ops import attend
from mstar_core.ops.paged_attention import cases, reference

LONG = cases.Case(name="long", rows=((3, 70), (40, 33), (0, 50)), pad_rows=2, pad_tokens=20)


def run(x):
    reference.write(x.k_TGD, x.v_TGD, x.k_PpGD, x.v_PpGD, x.plan.write_T)
    return reference.attend(
        x.q_TND, x.k_PpGD, x.v_PpGD, x.plan, scale=LONG.scale, causal=LONG.causal
    )


def test_blocks_of_queries_give_what_one_block_does(monkeypatch):
    whole = run(cases.lay(LONG))
    monkeypatch.setattr(attend, "SCORE_BUDGET", 1)
    blocks = run(cases.lay(LONG))
    torch.testing.assert_close(blocks, whole, atol=1e-6, rtol=1e-6)


def test_tokens_of_padding_rows_give_zeros():
    x = cases.lay(LONG)
    assert (run(x)[x.num_real :] == 0).all()


def test_the_future_of_a_chunk_is_not_seen():
    x, y = cases.lay(LONG), cases.lay(LONG)
    y.k_TGD[60:70], y.v_TGD[60:70] = 9.0, 9.0
    assert torch.equal(run(x)[:60], run(y)[:60])
    assert not torch.equal(run(x)[60:70], run(y)[60:70])
