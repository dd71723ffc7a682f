"""What a load asks: the same for the same seed, in every process."""

import json

import pytest

from mstar_core.bench.prompts import Asks, arrivals, lines_of


def fields(asks, number):
    return json.loads(asks.request(number).body)


def test_requests_are_the_same_for_the_same_seed_and_different_by_number():
    asks = Asks(route="chat", model="m", words=5, output_tokens=7, ignore_eos=True, seed=3)
    assert asks.request(4) == Asks(**{**_plain(asks)}).request(4)
    assert asks.request(4) != asks.request(5)
    assert asks.request(4) != Asks(**{**_plain(asks), "seed": 4}).request(4)
    (message,) = fields(asks, 4)["messages"]
    assert len(message["content"].split()) == 5
    assert fields(asks, 4) == {
        "model": "m",
        "messages": [message],
        "max_tokens": 7,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def _plain(asks):
    from attrs import asdict

    return json.loads(json.dumps(asdict(asks)))


def test_a_completion_may_have_random_ids():
    prompt = fields(Asks(route="completions", words=9, vocab=50), 0)["prompt"]
    assert len(prompt) == 9
    assert set(prompt) <= set(range(50))


def test_texts_and_files_are_sent_in_turn(tmp_path):
    file = tmp_path / "prompts"
    file.write_bytes("one\u2028more\r\n\ntwo\n".encode())
    texts = lines_of(file)
    assert texts == ("one\u2028more", "two")
    asks = Asks(route="completions", prompts=texts)
    assert [fields(asks, n)["prompt"] for n in range(3)] == [
        "one\u2028more",
        "two",
        "one\u2028more",
    ]
    speech = fields(Asks(route="speech", prompts=texts, voice="v"), 1)
    assert speech == {"input": "two", "response_format": "pcm", "voice": "v"}


def test_a_file_of_sound_travels_with_its_length(tmp_path):
    file = tmp_path / "a.wav"
    file.write_bytes(b"RIFF")
    asks = Asks(route="transcriptions", audio=[str(file)], audio_s=[2.5])
    assert b"RIFF" in asks.request(3).body
    assert asks.sound_s(3) == 2.5


def test_arrivals_are_a_poisson_process_of_the_rate_and_the_seed():
    found = arrivals(20_000, 50.0, seed=1)
    assert found == arrivals(20_000, 50.0, seed=1) != arrivals(20_000, 50.0, seed=2)
    gaps = [b - a for a, b in zip([0.0, *found], found, strict=False)]
    assert min(gaps) >= 0
    assert found[-1] == pytest.approx(400, rel=0.03)
    variance = sum((gap - 0.02) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(0.02**2, rel=0.1)
