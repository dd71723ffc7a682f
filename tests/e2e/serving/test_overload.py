"""Eight times as many clients as a server takes: some are served, the others told when to come."""

import asyncio
import json
import re
import statistics
import time
from pathlib import Path

import pytest
from attrs import define, field

MOST = 8
TIMES = 8
TOKENS = 64
REFUSED_S = 0.05
"""The promise for an answer of 429."""
MARGIN = 5


@define
class Load:
    """What clients were told."""

    served: list = field(factory=list)
    """Seconds of each 200."""
    refused: list = field(factory=list)
    """Seconds of each 429."""
    others: list = field(factory=list)


async def one(port, load, pause_s):
    """One request on a connection of its own; a client that is refused pauses."""
    body = json.dumps({"prompt": "x" * TOKENS, "max_tokens": TOKENS}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + body)
        answer = await reader.read(-1)
    finally:
        writer.close()
        await writer.wait_closed()
    took = time.perf_counter() - began
    status = int(answer.split(b" ", 2)[1])
    if status == 200:
        load.served.append(took)
    elif status == 429 and b"\r\nretry-after: " in answer and b'"overloaded"' in answer:
        load.refused.append(took)
        await asyncio.sleep(pause_s)
    else:
        load.others.append(answer)


async def press(port, clients, seconds, pause_s=0.2):
    """``clients`` ask one request behind the other for so many seconds."""
    load, end = Load(), time.monotonic() + seconds

    async def client():
        while time.monotonic() < end:
            await one(port, load, pause_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    return load


def p99(values):
    return statistics.quantiles(values, n=100)[98]


def memory_of(pid):
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture
def tight(serve):
    return serve("--set", f"limits.max_open={MOST}").ready()


def test_a_server_that_is_full_says_so_at_once_and_serves_on(tight):
    load = asyncio.run(press(tight.port, MOST * TIMES, 3))
    assert load.others == []
    assert len(load.served) >= MOST
    assert len(load.refused) >= MOST
    assert statistics.median(load.refused) < REFUSED_S * MARGIN
    assert tight.complete("after").json["choices"][0]["text"] == "after"
    assert tight.metric("mstar_requests_open") == 0


def spent(log, outcome):
    """Milliseconds in the server of each request of an outcome."""
    found = re.findall(r"outcome=(\w+) .*total_ms=([\d.]+)", log)
    return [float(ms) for name, ms in found if name == outcome]


def told(what, ms):
    return f"{what}: {len(ms)}, p50 {statistics.median(ms):.2f} ms, p99 {p99(ms):.2f} ms"


@pytest.mark.long
def test_a_minute_of_eight_times_the_load_leaves_those_served_as_they_were(tight):
    asyncio.run(press(tight.port, MOST, 20))
    alone = spent(tight.log, "length")
    asyncio.run(press(tight.port, MOST * TIMES, 5))
    before, at = memory_of(tight.api()), len(tight.log)
    load = asyncio.run(press(tight.port, MOST * TIMES, 60))
    grown = memory_of(tight.api()) - before
    served, refused = spent(tight.log[at:], "length"), spent(tight.log[at:], "rejected")
    clients = [took * 1e3 for took in load.refused]
    print("", told("alone", alone), told("served", served), told("refused", refused), sep="\n")
    print(told("refused, as clients see it", clients), f"{grown} bytes grown", sep="\n")
    assert load.others == []
    assert len(load.served) + len(load.refused) > 1000
    assert p99(refused) < REFUSED_S * 1e3
    assert statistics.median(clients) < REFUSED_S * 1e3 * MARGIN
    assert p99(served) < p99(alone) * 1.3 * MARGIN
    assert grown < 16 << 20
