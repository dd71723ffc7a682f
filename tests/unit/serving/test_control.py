"""The control channel: messages whole and in order, descriptors with the right message, ends."""

import os
import socket
import threading

import pytest

from mstar_core.serving.control import Control
from mstar_core.serving.orders import (
    Beat,
    Connect,
    Failed,
    Phase,
    Ready,
    Scraped,
    Start,
    Stop,
)


@pytest.fixture
def ends():
    ours, theirs = Control.pair()
    other = Control(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_messages_arrive_whole_and_in_order(ends):
    ours, other = ends
    sent = [
        Start(config="echo", sets=["server.port=0"], index=3),
        Phase("weights", 5, 9),
        Ready([("imports", 0.5)], {"max_context": 64, "report": {"a": [1, 2]}}),
        Failed({"where": "x", "got": "y", "want": "", "fix": ""}, 1),
        Beat(7, True),
        Stop(),
    ]
    for message in sent:
        ours.send(message)
    assert [received.message for received in other.receive()] == sent
    assert other.receive() == []


def test_descriptors_come_with_the_message_that_they_were_sent_with(ends):
    ours, other = ends
    first, second = os.pipe()
    listener = socket.socket()
    ours.send(Beat())
    ours.send(Connect(0), [first, second])
    ours.send(Connect(1), [listener.fileno()])
    os.close(first)
    os.write(second, b"through")
    os.close(second)
    listener.close()
    beat, two, one = other.receive()
    assert beat.fds == ()
    assert (two.message, len(two.fds)) == (Connect(0), 2)
    assert (one.message, len(one.fds)) == (Connect(1), 1)
    assert os.read(two.fds[0], 100) == b"through"
    assert not any(os.get_inheritable(fd) for fd in two.fds + one.fds)
    for fd in two.fds + one.fds:
        os.close(fd)


def test_what_the_socket_does_not_take_is_kept_and_flushed_later(ends):
    ours, other = ends
    read, write = os.pipe()
    text = "x" * 1_000_000
    ours.send(Scraped(0, 1, text))
    ours.send(Connect(2), [read])
    assert ours.has_unsent
    got = []
    while len(got) < 2:
        got += other.receive()
        ours.flush()
    assert not ours.has_unsent
    assert got[0].message.text == text
    assert len(got[1].fds) == 1
    for fd in (read, write, *got[1].fds):
        os.close(fd)


def test_waiting_takes_one_message_and_gives_up_in_time(ends):
    ours, other = ends
    assert other.wait(0.01) is None
    ours.send(Beat(1))
    ours.send(Beat(2))
    assert other.wait(5).message == Beat(1)
    assert other.wait(5).message == Beat(2)


def test_a_closed_channel_ends_after_its_last_message(ends):
    ours, other = ends
    ours.send(Beat(1))
    ours.close()
    assert [received.message for received in other.receive()] == [Beat(1)]
    with pytest.raises(EOFError):
        other.receive()
    with pytest.raises(EOFError):
        other.wait()
    with pytest.raises(BrokenPipeError):
        other.send(Beat(2))


def test_what_is_no_message_is_refused():
    other, theirs = Control.pair()
    theirs.send(b"\xff\xff\xff\xff\x00")
    with pytest.raises(ValueError, match="not a frame"):
        other.receive()
    theirs.close()
    other.close()
    theirs_too, raw = Control.pair()
    raw.send(b"\x00\x00\x00\x01\x00\xc0")
    with pytest.raises(ValueError, match="Expected `object`"):
        theirs_too.receive()
    raw.close()
    theirs_too.close()


def test_threads_may_send_at_the_same_time(ends):
    ours, other = ends
    threads = [
        threading.Thread(target=lambda k=k: [ours.send(Beat(k * 1000 + n)) for n in range(200)])
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    got = []
    while len(got) < 800:
        got += [received.message.turns for received in other.receive()]
        ours.flush()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(k * 1000 + n for k in range(4) for n in range(200))
    for k in range(4):
        assert [n for n in got if n // 1000 == k] == [k * 1000 + n for n in range(200)]
