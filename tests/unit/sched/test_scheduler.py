"""The choice of the next step: walks in turn, rows in order, prompts cut to the budget."""

import numpy as np
import pytest

from mstar_core.model.front import Request
from mstar_core.model.walks import Input, Loop, Once, Output, Sequence, Walk
from mstar_core.sched import RequestState, Scheduler
from mstar_core.sched.request import tracks_of
from mstar_core.sched.scheduler import due

INPUTS = (Input(name="ids", loops=True),)
CHUNKED = Walk(name="prefill", node="n", feed="prompt", inputs=INPUTS, samples=True, chunkable=True)
WHOLE = Walk(name="prefill", node="n", feed="prompt", inputs=INPUTS, samples=True)
WINDOWS = Walk(name="prefill", node="n", feed="prompt", inputs=INPUTS, max_items=2, chunkable=True)
DECODE = Walk(name="decode", node="n", feed="loop", inputs=INPUTS, samples=True)
FILL = Walk(
    name="prefill",
    node="n",
    feed="prompt",
    inputs=INPUTS,
    outputs=(Output(name="out", edge="e"),),
    chunkable=True,
)
EMPTY = Walk(name="empty", node="m", feed="edge", edge="e", inputs=INPUTS)


class World:
    """A scheduler and the requests that run."""

    def __init__(self, *walks, graph=None, budget=16, min_chunk=4, max_rows=4):
        self.graph = graph or Sequence((Once("prefill"), Loop("decode")))
        self.waiting, self.room = {}, {}
        self.scheduler = Scheduler(
            walks={walk.name: walk for walk in walks},
            max_rows=max_rows,
            token_budget=budget,
            min_chunk=min_chunk,
            waiting_items=lambda edge, handle: self.waiting.get(handle, 0),
            edge_room=lambda edge, handle: self.room.get(handle, 99),
        )
        self.running = []
        self.number = 0

    def add(self, prompt, new=4, **more):
        request = Request(arrays={"ids": np.zeros(prompt, np.int64)}, max_new_tokens=new, **more)
        state = RequestState(
            request=request, number=len(self.running), tracks=tracks_of(self.graph)
        )
        state.handle = len(self.running) + 10
        self.running.append(state)
        return state

    def step(self):
        """Launch the next step; (walk, [(request, start, span, samples)])."""
        choice = self.scheduler.next(self.running)
        if choice is None:
            return None
        step, rows = choice
        self.scheduler.launched(rows, self.number)
        self.number += 1
        assert step.handles_B.tolist() == [row.state.handle for row in rows]
        assert step.spans_B.tolist() == [row.span for row in rows]
        assert step.samples_B.tolist() == [row.samples for row in rows]
        return step.walk, [(r.state.number, r.start, r.span, r.samples) for r in rows]

    def steps(self):
        found = []
        while (step := self.step()) is not None:
            found.append(step)
        return found


def test_a_prompt_is_cut_to_the_budget_and_samples_on_its_last_chunk_alone():
    """KV-07"""
    world = World(CHUNKED, DECODE)
    world.add(40, new=1)
    assert world.steps() == [
        ("prefill", [(0, 0, 16, False)]),
        ("prefill", [(0, 16, 16, False)]),
        ("prefill", [(0, 32, 8, True)]),
    ]


def test_prompts_share_a_step_and_the_last_is_cut():
    world = World(CHUNKED, DECODE)
    world.add(5, new=1)
    world.add(30, new=1)
    assert world.steps() == [
        ("prefill", [(0, 0, 5, True), (1, 0, 11, False)]),
        ("prefill", [(1, 11, 16, False)]),
        ("prefill", [(1, 27, 3, True)]),
    ]


def test_a_prompt_is_not_cut_into_pieces_below_min_chunk():
    world = World(CHUNKED, DECODE)
    world.add(14, new=1)
    world.add(30, new=1)
    assert world.step() == ("prefill", [(0, 0, 14, True)])
    assert world.step() == ("prefill", [(1, 0, 16, False)])


def test_a_short_prompt_fits_whole_into_less_than_min_chunk():
    world = World(CHUNKED, DECODE)
    world.add(14, new=1)
    world.add(2, new=1)
    assert world.step() == ("prefill", [(0, 0, 14, True), (1, 0, 2, True)])


def test_a_walk_that_cannot_be_cut_runs_whole_beyond_the_budget_and_alone():
    world = World(WHOLE, DECODE)
    world.add(5, new=1)
    world.add(40, new=1)
    assert world.steps() == [("prefill", [(0, 0, 5, True)]), ("prefill", [(1, 0, 40, True)])]


def test_a_walk_may_bound_its_items_instead_of_the_budget():
    world = World(WINDOWS, graph=Sequence((Once("prefill"),)), min_chunk=1)
    world.add(5)
    assert world.steps() == [
        ("prefill", [(0, 0, 2, False)]),
        ("prefill", [(0, 2, 2, False)]),
        ("prefill", [(0, 4, 1, False)]),
    ]


def test_a_loop_takes_one_item_a_step_and_never_passes_max_new_tokens():
    world = World(CHUNKED, DECODE)
    world.add(3, new=3)
    assert world.steps() == [
        ("prefill", [(0, 0, 3, True)]),
        ("decode", [(0, 0, 1, True)]),
        ("decode", [(0, 0, 1, True)]),
    ]


def test_prompts_and_decodes_take_turns_so_that_neither_starves():
    world = World(CHUNKED, DECODE)
    world.add(3, new=20)
    world.step()
    world.add(64, new=1)
    walks = [world.step()[0] for _ in range(8)]
    assert walks == ["decode", "prefill"] * 4


def test_rows_go_in_order_of_arrival_up_to_max_rows():
    world = World(CHUNKED, DECODE, max_rows=2)
    for _ in range(3):
        world.add(2, new=2)
    assert world.step() == ("prefill", [(0, 0, 2, True), (1, 0, 2, True)])
    assert world.step() == ("decode", [(0, 0, 1, True), (1, 0, 1, True)])
    assert world.step() == ("prefill", [(2, 0, 2, True)])


def test_decodes_beyond_the_budget_wait():
    world = World(CHUNKED, DECODE, budget=2, min_chunk=1)
    for _ in range(3):
        world.add(1, new=2)
    assert [len(rows) for _, rows in world.steps()] == [2, 2, 1, 1]


def test_a_gated_request_is_left_out_while_a_step_of_it_is_unread():
    world = World(CHUNKED, DECODE)
    gated = world.add(3, new=4, gated=True)
    world.add(3, new=4)
    world.step()
    assert world.step() == ("decode", [(1, 0, 1, True)])
    gated.tracks[0].unread = 0
    assert world.step() == ("decode", [(0, 0, 1, True), (1, 0, 1, True)])
    assert world.step() == ("decode", [(1, 0, 1, True)])


@pytest.mark.parametrize("end", ["failing", "ended"])
def test_a_request_that_is_ending_is_launched_no_more(end):
    world = World(CHUNKED, DECODE)
    state = world.add(3, new=4)
    world.step()
    if end == "failing":
        state.failing = True
    else:
        state.tracks[0].ended = True
    assert world.step() is None


def test_a_prompt_that_fills_an_edge_waits_for_its_room():
    world = World(FILL, EMPTY, graph=Sequence((Once("prefill"), Once("empty"))))
    state = world.add(10)
    world.room[state.handle] = 3
    assert world.step() == ("prefill", [(0, 0, 3, False)])
    world.room[state.handle] = 0
    assert world.step() is None
    world.room[state.handle] = 9
    assert world.step() == ("prefill", [(0, 3, 7, False)])


def test_a_walk_behind_an_edge_takes_what_waits_there_and_is_used_up():
    world = World(FILL, EMPTY, graph=Sequence((Once("prefill"), Once("empty"))))
    state = world.add(2)
    world.step()
    assert state.tracks[0].walk == "empty"
    world.waiting[state.handle] = 2
    choice = world.scheduler.next(world.running)
    assert choice[0].spans_B.tolist() == [2]
    world.waiting[state.handle] = 0
    world.scheduler.launched(choice[1], 5)
    assert state.tracks[0].walk is None
    assert world.step() is None


def test_a_launch_is_counted_where_the_next_choice_looks():
    world = World(CHUNKED, DECODE)
    state = world.add(20, new=3)
    world.step()
    track = state.tracks[0]
    assert (track.done, track.unread, track.sampled, state.last_entry) == (16, 1, 0, 0)
    world.step()
    assert (track.done, track.unread, track.sampled, state.last_entry) == (0, 2, 1, 1)
    assert track.loops


def test_a_walk_that_is_held_leaves_the_turn_to_the_others():
    world = World(CHUNKED, DECODE)
    world.add(3, new=4)
    world.step()
    world.add(20, new=4)
    assert world.scheduler.next(world.running, {"decode"})[0].walk == "prefill"
    assert world.scheduler.next(world.running, {"prefill"})[0].walk == "decode"
    assert world.scheduler.next(world.running, {"prefill", "decode"}) is None


def test_leading_rows_of_a_step_are_declared_as_a_step_of_their_own():
    world = World(CHUNKED, DECODE)
    for _ in range(3):
        world.add(3, new=4)
    step, rows = world.scheduler.next(world.running)
    fewer = world.scheduler.fewer(step, rows[:2])
    assert (fewer.walk, fewer.handles_B.tolist()) == ("prefill", [10, 11])
    assert (fewer.spans_B.tolist(), fewer.samples_B.tolist()) == ([3, 3], [True, True])


def test_a_row_in_its_loop_is_the_same_in_every_step():
    world = World(CHUNKED, DECODE)
    world.add(3, new=6)
    world.step()
    first = world.scheduler.next(world.running)[1][0]
    world.step()
    assert world.scheduler.next(world.running)[1][0] is first


def test_a_prompt_that_waits_is_looked_at_once():
    world = World(CHUNKED, DECODE, budget=3)
    for _ in range(2):
        world.add(3, new=2)
    world.step()
    waiting = world.running[1].tracks[0].row
    assert (waiting.walk, waiting.start, waiting.span) == ("prefill", 0, 3)
    assert world.step()[0] == "decode"
    assert world.scheduler.next(world.running)[1][0] is waiting


@pytest.mark.parametrize(
    ("chunks", "ends"), [((1,), [1, 2, 3, 4]), ((2, 3), [2, 5, 8, 11]), ((1, 2, 4), [1, 3, 7, 11])]
)
def test_a_chunk_is_due_up_to_its_end_however_much_was_taken(chunks, ends):
    for done in range(ends[-1]):
        assert done + due(chunks, done) == next(end for end in ends if end > done)
