"""Mixed steps: decode rows first and never waiting, prompts in what they leave."""

import attrs
import numpy as np
import pytest

from mstar_core.model.front import Request
from mstar_core.model.walks import Input, Loop, Once, Sequence, Walk
from mstar_core.sched import RequestState, Scheduler
from mstar_core.sched.request import tracks_of

INPUTS = (Input(name="ids", loops=True),)
PREFILL = Walk(name="prefill", node="n", feed="prompt", inputs=INPUTS, samples=True, chunkable=True)
DECODE = Walk(name="decode", node="n", feed="loop", inputs=INPUTS, samples=True)
MIXED = Walk(
    name="mixed",
    node="n",
    feed="rows",
    inputs=INPUTS,
    samples=True,
    combines=("prefill", "decode"),
)
GRAPH = Sequence((Once("prefill"), Loop("decode")))


class World:
    """A scheduler that mixes, and the requests that run."""

    def __init__(self, walks=(PREFILL, DECODE, MIXED), budget=16, min_chunk=4, max_rows=8):
        self.scheduler = Scheduler(
            walks={walk.name: walk for walk in walks},
            max_rows=max_rows,
            token_budget=budget,
            min_chunk=min_chunk,
            waiting_items=lambda edge, handle: 0,
            edge_room=lambda edge, handle: 99,
        )
        self.running, self.number = [], 0

    def add(self, *prompts, new=20, **more):
        for prompt in prompts:
            request = Request(
                arrays={"ids": np.zeros(prompt, np.int64)}, max_new_tokens=new, **more
            )
            number = len(self.running)
            state = RequestState(request=request, number=number, tracks=tracks_of(GRAPH))
            state.handle = number + 10
            self.running.append(state)

    def step(self):
        """Launch the next step; (walk, [(request, start, span, samples, carry)])."""
        choice = self.scheduler.next(self.running)
        if choice is None:
            return None
        step, rows = choice
        self.scheduler.launched(rows, self.number)
        self.number += 1
        assert step.handles_B.tolist() == [row.state.handle for row in rows]
        assert step.spans_B.tolist() == [row.span for row in rows]
        assert step.carry_B.tolist() == [row.carry for row in rows]
        return step.walk, [(r.state.number, r.start, r.span, r.samples, r.carry) for r in rows]


def decoding(*prompts, **more):
    """A world whose first requests decode."""
    world = World(**more)
    world.add(*prompts)
    while any(state.tracks[0].walk == "prefill" for state in world.running):
        world.step()
    return world


def test_decode_rows_come_first_and_prompts_behind_them_each_in_order():
    world = decoding(3, 3)
    world.running.insert(1, world.running.pop())  # order of arrival is the order of the list
    world.add(5, 4)
    assert world.step() == (
        "mixed",
        [
            (0, 0, 1, True, True),
            (1, 0, 1, True, True),
            (2, 0, 5, True, False),
            (3, 0, 4, True, False),
        ],
    )
    assert world.step()[0] == "decode"


def test_the_order_is_the_same_wherever_the_same_rows_are_ready():
    choices = []
    for _ in range(2):
        world = decoding(3, 5, 2)
        world.add(9, 30)
        choices.append([world.step() for _ in range(6)])
    assert choices[0] == choices[1]


def test_prompts_get_the_tokens_that_decode_rows_leave():
    world = decoding(3, 3, 3)
    world.add(40)
    assert [world.step()[1][-1] for _ in range(4)] == [
        (3, 0, 13, False, False),
        (3, 13, 13, False, False),
        (3, 26, 13, False, False),
        (3, 39, 1, True, False),
    ]


def test_a_prompt_is_not_cut_below_min_chunk_beside_decode_rows():
    world = decoding(3, 3, 3, budget=6)
    world.add(40)
    assert world.step()[0] == "prefill", "3 tokens are left, and a chunk has at least 4"
    assert world.step() == ("decode", [(n, 0, 1, True, True) for n in range(3)])


def test_a_prompt_that_never_fits_beside_decode_rows_takes_turns_with_them():
    world = decoding(*[2] * 6, budget=6, min_chunk=1)
    world.add(20)
    assert [world.step()[0] for _ in range(6)] == ["prefill", "decode"] * 3


def test_no_decode_row_waits_for_prompts():
    world = decoding(3, 3, max_rows=5)
    world.add(30, 30, 30)
    for _ in range(8):
        loops = [s.number for s in world.running if s.tracks[0].walk == "decode"]
        walk, rows = world.step()
        assert walk == "mixed" or len(loops) == 5
        assert [row[0] for row in rows][: len(loops)] == loops
        assert sum(row[2] for row in rows) <= 16
    assert len(loops) == 5


def test_a_mixed_step_has_no_more_rows_than_any_other():
    world = decoding(3, 3, 3, max_rows=4)
    world.add(2, 2)
    assert [row[0] for row in world.step()[1]] == [0, 1, 2, 3]


def test_a_step_of_one_kind_alone_keeps_its_walk():
    world = World()
    world.add(4, 4)
    assert world.step()[0] == "prefill"
    assert world.step()[0] == "decode"


def test_a_gated_row_that_is_unread_is_left_out_of_a_mixed_step():
    world = World()
    world.add(3)
    world.add(3, gated=True)
    assert world.step()[0] == "prefill"
    world.add(5)
    assert [row[0] for row in world.step()[1]] == [0, 2]


def test_without_a_combined_walk_nothing_is_mixed():
    world = decoding(3, walks=(PREFILL, DECODE))
    world.add(5)
    assert {world.step()[0] for _ in range(2)} == {"prefill", "decode"}


def test_a_mixed_step_is_never_taken_for_a_steady_one():
    world = decoding(3)
    world.step()
    assert world.scheduler.sole
    world.add(5)
    world.step()
    assert not world.scheduler.sole


def test_a_combined_walk_whose_kinds_are_not_both_ready_is_not_run():
    other = attrs.evolve(MIXED, name="other", combines=("decode", "elsewhere"))
    elsewhere = attrs.evolve(PREFILL, name="elsewhere")
    world = decoding(3, walks=(PREFILL, DECODE, elsewhere, other))
    world.add(5)
    assert "other" not in [world.step()[0] for _ in range(4)]


@pytest.mark.parametrize("order", [("prefill", "decode"), ("decode", "prefill")])
def test_the_order_of_rows_is_not_that_of_the_declaration(order):
    mixed = attrs.evolve(MIXED, combines=order)
    world = decoding(3, walks=(PREFILL, DECODE, mixed))
    world.add(5)
    assert [row[0] for row in world.step()[1]] == [0, 1]
