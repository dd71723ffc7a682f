"""The engine on the ledger model, where one wrong page, slot, length or order changes a token."""

import pytest

from mstar_core.engine.device import Lag
from mstar_core.testing.cores import open_ledger, run_all
from mstar_core.testing.ledger import continuation, ledger_request

SMALL = (
    "engine.max_rows=8",
    "engine.token_budget=64",
    "engine.max_context=128",
    "nodes.ledger.resources.kv.page_tokens=8",
)


def requests(count, length=11, new=20):
    return {
        f"r{i}": ledger_request(
            [(7 * i + j) % 97 for j in range(length + i)], i + 1, new, id=f"r{i}"
        )
        for i in range(count)
    }


def expected(request):
    ids, salt = request.arrays["ids"].tolist(), int(request.arrays["salt"][0])
    return continuation(ids, salt, request.max_new_tokens)


@pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
@pytest.mark.parametrize("graphs", ["off", "recorder"])
@pytest.mark.parametrize("lag", [None, Lag(), Lag(seed=3)])
def test_every_token_is_exact_at_every_depth_eager_and_captured(tmp_path, in_flight, graphs, lag):
    sets = (
        *SMALL,
        f"engine.in_flight={in_flight}",
        f"engine.graphs={graphs}",
        "engine.capture.rows=[1,4,8]",
        "engine.capture.tokens=[16,64]",
    )
    core, report = open_ledger(tmp_path, sets, lag)
    given = requests(11)
    found = run_all(core, given.values())
    for name, request in given.items():
        assert found[name].ids == expected(request)
        assert found[name].finish_reason == "length"
    if graphs == "recorder":
        assert core.stats()["replayed"] > 0
        assert not [b for n in report.nodes for b in n.buckets if not b.captured]
