"""What tests of several commands need."""

import signal

import pytest


@pytest.fixture
def interruptible():
    """SIGINT interrupts, even where the tests were started in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
