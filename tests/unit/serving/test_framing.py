"""Frames: whatever the cuts, what went in comes out; a bad length is refused at once."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_core.serving.framing import MAX_FRAME, Frames, framed, frames_of
from mstar_core.serving.messages import Abort, FrameError, FromApi, Stop, decoded


def cut(data, places):
    places = sorted({min(place, len(data)) for place in places})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=40), max_size=12),
    places=st.lists(st.integers(0, 500), max_size=12),
)
def test_frames_come_out_whole_and_in_order_wherever_the_bytes_are_cut(bodies, places):
    data = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
    frames = Frames()
    assert [body for piece in cut(data, places) for body in frames.feed(piece)] == bodies


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1, 0xFFFFFFFF])
def test_a_bad_length_is_refused_before_its_bytes_have_come(size):
    with pytest.raises(FrameError, match=f"a frame of {size} bytes"):
        Frames().feed(size.to_bytes(4, "little"))


def test_frames_before_a_bad_length_are_not_given_either():
    with pytest.raises(FrameError):
        Frames(most=8).feed(b"\x01\0\0\0a" + b"\x09\0\0\0")


def test_a_blocking_socket_gives_frames_until_it_ends():
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(framed(Stop(3, 7)) + framed(Abort(4)))
        messages = [decoded(body, FromApi) for body in frames_of(ours)]
    assert messages == [Stop(3, 7), Abort(4)]


def test_a_message_that_no_frame_holds_is_not_sent():
    with pytest.raises(FrameError, match="at most"):
        framed(Stop("x" * MAX_FRAME, 1))
