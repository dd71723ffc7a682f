"""Page arrays: the same from block tables on the device and from lengths on the host."""

import flashinfer_fakes as fakes
import pytest
import torch

from mstar_core.engine.recorder import Recorder
from mstar_core.fixed import FixedBuffers
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.paged_attention import cases
from mstar_core.testing.ops.base import mapped
from mstar_flashinfer.attention import paged
from mstar_flashinfer.attention.lengths import HostLengths, page_list

TABLE = torch.tensor([[7, 3, 0, 0], [0, 0, 0, 0], [5, 1, 2, 0], [9, 0, 0, 0]], dtype=torch.int32)
LENS = torch.tensor([9, 0, 24, 8], dtype=torch.int32)
"""Of pages of 8 tokens: two pages, none, three full ones, one full one."""


def host_of(case):
    plan = cases.lay(case).plan
    return plan, HostLengths.of(mapped(plan, lambda x: x.numpy()))


def test_pages_in_use_stand_one_row_behind_the_other():
    assert page_list(TABLE, LENS, 8)[:6].tolist() == [7, 3, 5, 1, 2, 9]


def test_a_graph_makes_the_list_of_any_table_from_lengths_alone():
    """S1.1: indices off the block table, in shapes that no length changes."""
    table, lens = torch.zeros_like(TABLE), torch.zeros_like(LENS)
    graphs = Recorder(FixedBuffers(torch.device("cpu")))
    graph = graphs.capture("pages", lambda: {"list": page_list(table, lens, 8)}, [table, lens])
    for case in (torch.tensor([0, 0, 0, 1]), LENS, torch.tensor([32, 32, 32, 32])):
        table.copy_(TABLE)
        lens.copy_(case)
        graph.replay()
        want = [page for row, n in zip(TABLE, case, strict=True) for page in row[: -(-n // 8)]]
        assert graph.outputs["list"][: len(want)].tolist() == [int(page) for page in want]


def test_the_host_gives_bounds_and_last_pages_of_the_same_list():
    lengths = HostLengths(q_lens_B=torch.ones(4), kv_lens_B=LENS, num_lead=0, decode=1)
    bounds, last = lengths.pages(8)
    assert bounds.tolist() == [0, 2, 2, 5, 6]
    assert last.tolist() == [1, 0, 8, 8]
    assert bounds.dtype == last.dtype == torch.int32


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_halves_of_a_step_own_each_token_once(case):
    """S4.9: rows of the other half have no queries."""
    plan, host = host_of(case)
    lead, others = host.queries(True), host.queries(False)
    spans, num = plan.q_lens_B.tolist(), host.num_lead
    assert lead[0] == others[0] == 0
    assert lead.diff().tolist() == [1] * num + [0] * (len(spans) - num)
    assert others.diff().tolist() == [0] * num + spans[num:]


@pytest.fixture
def ops(monkeypatch):
    monkeypatch.setattr(paged, "WORKSPACE", 1024)
    sizes = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_tokens": 8}
    fakes.PLANS.clear()
    return fakes.FA2.bind(
        BindRequest(operation="paged_attention", device="cpu", dtype=torch.float32, geometry=sizes)
    )


def test_a_step_is_planned_once_for_all_its_layers(ops):
    case = next(c for c in cases.CASES if c.name == "decode-first")
    x, schedule = cases.lay(case, garbage=0.0), None
    for step in range(2):
        schedule = ops.schedule(mapped(x.plan, lambda t: t.numpy()))
        plan = cases.CasePlan(**{**vars_of(x.plan), "schedule": schedule})
        for _ in range(3):
            ops.attend(x.q_TND, x.k_PpGD, x.v_PpGD, plan, scale=1.0, causal=True)
        assert len(fakes.PLANS) == 2 * (step + 1)
    kinds = {(name, backend) for name, backend, _ in fakes.PLANS}
    assert kinds == {("FakePrefill", "fa2")}
    assert [spans for _, _, spans in fakes.PLANS[:2]] == [[1, 1, 0, 0, 0, 0], [0, 0, 7, 4, 3, 0]]


def test_fa3_plans_prompts_and_fa2_the_lead(monkeypatch):
    monkeypatch.setattr(paged, "WORKSPACE", 1024)

    sizes = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_tokens": 8}
    request = BindRequest(
        operation="paged_attention", device="cpu", dtype=torch.float32, geometry=sizes
    )
    ops, x = fakes.FA3.bind(request), cases.lay(cases.SPLIT[0], garbage=0.0)
    fakes.PLANS.clear()
    schedule = ops.schedule(mapped(x.plan, lambda t: t.numpy()))
    plan = cases.CasePlan(**{**vars_of(x.plan), "schedule": schedule})
    ops.attend(x.q_TND, x.k_PpGD, x.v_PpGD, plan, scale=1.0, causal=True)
    assert [backend for _, backend, _ in fakes.PLANS] == ["fa2", "fa3"]


def vars_of(plan):
    import attrs

    return {f.name: getattr(plan, f.name) for f in attrs.fields(type(plan))}
