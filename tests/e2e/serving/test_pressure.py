"""Over HTTP, with a fraction of the memory that the open requests could use: who yields, and what
clients see of it, which is nothing.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

CLIENTS = 24
REQUESTS = 96


def prompts():
    """Of many lengths, none like another."""
    draw = random.Random(7)
    return [f"{n} " + "abcdefghij"[n % 10] * draw.randint(40, 200) for n in range(REQUESTS)]


def yielded_in(server):
    def yielded():
        """somebody gave memory up"""
        return server.metric("mstar_engine_(offloaded|recomputed)_total") > 0

    return yielded


def test_with_a_tenth_of_the_memory_every_answer_is_the_whole_one(serve):
    server = serve(
        "--set",
        "engine.kv_memory=8KiB",
        "--set",
        "engine.admission=take",
        "--set",
        "nodes.mouth.resources.kv.page_tokens=16",
    ).ready()
    asked = prompts()
    with ThreadPoolExecutor(CLIENTS) as clients:
        streamed = clients.map(partial(server.stream, max_tokens=300), asked[::2])
        whole = list(clients.map(partial(server.complete, max_tokens=300), asked[1::2]))
    streamed = list(streamed)
    assert [text for text, _, _ in streamed] == asked[::2]
    assert {(code, done) for _, code, done in streamed} == {(None, True)}
    assert [answer.json["choices"][0]["text"] for answer in whole] == asked[1::2]
    server.until(yielded_in(server))

    def is_empty():
        """everything was given back, as the engine's next sign of life says"""
        return server.metric("mstar_requests_running|mstar_resource_usage_ratio") == 0

    server.until(is_empty)
