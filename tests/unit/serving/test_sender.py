"""The writing side of a connection: which thread writes, and that what it writes is whole."""

import socket
import threading

import pytest

from mstar_core.serving.messages import Stats
from mstar_core.serving.outbox import Outbox
from mstar_core.serving.sender import Sender


class Near:
    """A sender, the other end of its socket, and the threads that asked for frames."""

    def __init__(self, frame=b"frame"):
        ours, self.far = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.far.settimeout(20)
        self.outbox, self.frame, self.asked = Outbox(), frame, []
        self.sender = Sender(ours, self.outbox, self.frames, "api-0")

    def frames(self):
        _, answers = self.outbox.take()
        if answers:
            self.asked.append(threading.current_thread())
        return self.frame * len(answers)

    def put(self):
        self.outbox.answer(Stats({}))

    def received(self, size):
        data = b""
        while len(data) < size and (more := self.far.recv(1 << 20)):
            data += more
        return data


@pytest.fixture
def near():
    made = []

    def make(*frame):
        made.append(Near(*frame))
        return made[-1]

    yield make
    for each in made:
        each.sender.end()
        each.far.close()
        each.sender._thread.join(20)
        assert not each.sender.is_open


def test_whoever_is_about_to_rest_writes_itself(near):
    one = near()
    one.put()
    one.sender.flush(resting=True)
    assert one.asked == [threading.current_thread()]
    assert one.received(5) == b"frame"


def test_while_turns_go_on_a_thread_of_its_own_writes(near):
    one = near()
    one.put()
    one.sender.flush(resting=False)
    assert one.received(5) == b"frame"
    assert one.asked == [one.sender._thread]


def test_what_the_socket_does_not_take_at_once_comes_whole_and_in_order(near):
    frame = bytes(range(256)) * (1 << 13)
    one = near(frame)
    for _ in range(3):
        one.put()
        one.sender.flush(resting=True)
    assert one.received(3 * len(frame)) == frame * 3


def test_what_was_put_before_the_end_is_written(near):
    frame = b"x" * (1 << 21)
    one = near(frame)
    one.put()
    one.sender.flush(resting=True)
    one.put()
    one.sender.end()
    assert len(one.received(2 * len(frame) + 1)) == 2 * len(frame)


def test_a_reader_that_is_gone_ends_it(near):
    one = near(b"x" * (1 << 20))
    one.far.close()
    one.put()
    one.sender.flush(resting=True)
    one.sender.end()
    one.sender._thread.join(20)
    assert not one.sender.is_open
