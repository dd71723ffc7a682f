"""Shared memory: blocks do not overlap, nothing is lost, and readers stay inside."""

import os

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mstar_core.serving.arena import ALIGN, Arena, ArenaView, make_arena
from mstar_core.serving.messages import Array, FrameError

SIZE = 64 << 10


@pytest.fixture
def memory():
    fd = make_arena(SIZE)
    yield fd
    os.close(fd)


@pytest.fixture
def arena(memory):
    arena = Arena(memory)
    yield arena
    arena.close()


class Blocks(RuleBasedStateMachine):
    """Any order of taking and freeing."""

    def __init__(self):
        super().__init__()
        fd = make_arena(SIZE)
        self.arena = Arena(fd)
        os.close(fd)
        self.blocks = {}

    @rule(nbytes=st.integers(0, SIZE // 3))
    def take(self, nbytes):
        start = self.arena.take(nbytes)
        if start is None:
            edges = sorted([(0, 0), *self.blocks.items(), (SIZE, 0)])
            ends = [-(-(at + size) // ALIGN) * ALIGN for at, size in edges]
            gaps = [after[0] - end for end, after in zip(ends, edges[1:], strict=False)]
            assert max(gaps) < nbytes or max(gaps) == 0
            return
        assert start % ALIGN == 0
        assert start + nbytes <= SIZE
        for other, size in self.blocks.items():
            assert start >= other + size or other >= start + max(nbytes, 1)
        self.blocks[start] = max(nbytes, 1)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def free(self, data):
        start = data.draw(st.sampled_from(sorted(self.blocks)))
        del self.blocks[start]
        self.arena.free(start)

    @invariant()
    def nothing_is_lost(self):
        taken = sum(-(-size // ALIGN) * ALIGN for size in self.blocks.values())
        assert self.arena.free_bytes + taken == SIZE
        assert self.arena.num_taken == len(self.blocks)

    def teardown(self):
        for start in self.blocks:
            self.arena.free(start)
        assert self.arena.take(SIZE) == 0
        self.arena.close()


Blocks.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
test_blocks_never_overlap_and_all_come_back = Blocks.TestCase


def test_an_array_is_read_where_it_was_put_and_cannot_be_written(arena, memory):
    written = np.arange(600, dtype=np.float32).reshape(20, 30)
    arena.put(np.zeros(1, np.int8))
    start = arena.put(written)
    read = ArenaView(memory).array(Array("mel", "float32", (20, 30), start))
    assert np.array_equal(read, written)
    assert not read.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1


def test_what_does_not_fit_is_not_taken(arena):
    assert arena.take(SIZE + 1) is None
    assert arena.take(SIZE) == 0
    assert arena.take(1) is None
    arena.free(0)
    assert arena.free_bytes == SIZE


def test_a_block_is_freed_once(arena):
    start = arena.take(10)
    arena.free(start)
    with pytest.raises(KeyError):
        arena.free(start)


def test_the_memory_of_a_large_block_goes_back_to_the_system():
    fd = make_arena(4 << 20)
    arena = Arena(fd)
    start = arena.put(np.ones(2 << 20, np.uint8))
    assert os.fstat(fd).st_blocks * 512 >= 2 << 20
    arena.free(start)
    assert os.fstat(fd).st_blocks == 0
    arena.close()
    os.close(fd)


@pytest.mark.parametrize(
    ("shape", "data"),
    [((SIZE // 8 + 1,), 0), ((1,), SIZE), ((1,), 4), ((1 << 40, 1 << 40), 0), ((0, 1 << 62), b"")],
)
def test_an_array_outside_the_memory_is_refused(memory, shape, data):
    with pytest.raises(FrameError):
        ArenaView(memory).array(Array("ids", "int64", shape, data))


def test_the_memory_cannot_shrink_and_one_that_could_is_refused(memory):
    with pytest.raises(PermissionError):
        os.ftruncate(memory, 0)
    loose = os.memfd_create("loose")
    os.ftruncate(loose, SIZE)
    with pytest.raises(FrameError, match="not sealed"):
        ArenaView(loose)
    os.close(loose)


def test_an_empty_array_crosses(memory):
    assert ArenaView(memory).array(Array("ids", "int64", (0, 3), b"")).shape == (0, 3)
