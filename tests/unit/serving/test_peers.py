"""The metrics of other API processes: of all that answer in time, and to what was asked."""

import asyncio

from mstar_core.serving import peers
from mstar_core.serving.orders import Scrape, Scraped
from mstar_core.serving.peers import Peers


def asked(processes, answers):
    """What is found when each scrape gets ``answers(scrape)``; what was sent."""
    sent = []

    async def run():
        def send(message):
            sent.append(message)
            for answer in answers(message):
                asyncio.get_running_loop().call_soon(others.answered, answer)

        others = Peers(send, 1, processes)
        return [await others.expositions() for _ in range(2)]

    return asyncio.run(run()), sent


def test_each_of_the_others_is_heard_once():
    def answers(ask):
        return [Scraped(1, ask.id, f"process {n}") for n in (0, 2)]

    found, sent = asked(3, answers)
    assert found == [[b"process 0", b"process 2"]] * 2
    assert sent == [Scrape(1, 1), Scrape(1, 2)]


def test_one_process_asks_nobody():
    assert asked(1, lambda ask: []) == ([[], []], [])


def test_a_process_that_is_gone_or_silent_is_left_out(monkeypatch):
    monkeypatch.setattr(peers, "WAIT_S", 0.05)
    found, _ = asked(4, lambda ask: [Scraped(1, ask.id, ""), Scraped(1, ask.id, "here")])
    assert found == [[b"here"]] * 2


def test_an_answer_that_comes_too_late_is_dropped(monkeypatch):
    monkeypatch.setattr(peers, "WAIT_S", 0.05)
    found, _ = asked(2, lambda ask: [Scraped(1, ask.id - 1, "of before")])
    assert found == [[], []]
