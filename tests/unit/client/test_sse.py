"""Server-sent events out of bytes, in any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar_core.client.errors import BadAnswer
from mstar_core.client.sse import EventParser

ODD = "✅ a\u0085b\u2028c\u2029d\x0be\x0cf\x1cg 🏔"
STREAM = (
    "\ufeff: keep-alive\n\n"
    f"data: {ODD}\n\n"
    "event: error\r\ndata:1\r\ndata: 2\r\n\r\n"
    "id: 7\nretry: 5\n\n"
    "data\n\n"
    "data: [DONE]\n\n"
    "data: never ended"
).encode()
EVENTS = [("", ODD), ("error", "1\n2"), ("", ""), ("", "[DONE]")]


@given(st.lists(st.integers(1, 30), max_size=80))
def test_events_are_the_same_in_whatever_pieces_they_arrive(cuts):
    """API-11: U+0085, U+2028 and their like are text; only ``\\n`` and ``\\r\\n`` end a line."""
    data, parser, events = STREAM, EventParser("x"), []
    for cut in cuts:
        events += parser.feed(data[:cut])
        data = data[cut:]
    assert events + parser.feed(data) == EVENTS


def test_what_is_no_utf_8_is_a_bad_answer():
    with pytest.raises(BadAnswer, match="UTF-8"):
        EventParser("x").feed(b"data: \xff\n\n")
