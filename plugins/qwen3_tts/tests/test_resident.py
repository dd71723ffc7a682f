"""Frames of a resident talker: as from host plans, alone and beside other voices."""

from __future__ import annotations

import numpy as np
import pytest
from mstar_qwen3_tts.heard import HeardVoice
from mstar_qwen3_tts.plugin import provide_backends

from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine.device import Lag
from mstar_core.testing.cores import open_wired, results

MODEL = "mstar_qwen3_tts.model:Qwen3TTS"
SMALL = ("engine.token_budget=64", "model.dtype=fp32", "nodes.talker.resources.kv.page_tokens=8")
EAGER = ("engine.graphs=off",)
FEW = "model.options.captured_frames=[1,2,4,8,9,16]"
"""Those of the steps of 25 frames, each as many as it has, and of 40."""
CAPTURED = ("engine.graphs=recorder", "engine.capture.tokens=[64]", FEW)
HOST = (*CAPTURED, "engine.resident=off")
CHECKED = (*CAPTURED, "debug.row_check=true")


def opened(folder, tmp_path, *sets, rows=(1, 3), lag=None):
    """``rows``: of each bucket; the last is the most that a step may have."""
    sizes = f"engine.max_rows={rows[-1]}", f"engine.capture.rows={list(rows)}"
    given = (*SMALL, *sizes, *sets)
    return open_wired(MODEL, tmp_path, given, lag, checkpoint=folder, backends=provide_backends)


def played(core, requests):
    """The result of each request, its sound included."""
    for request in requests:
        core.submit(request)
    return finished(core)


def finished(core):
    """The results of all that the core is given."""
    while core.turn():
        pass
    core.check_conserved()
    core.check_rows()
    return results(core)


def sampling(seed):
    return SamplingSettings(temperature=0.9, top_k=50, repetition_penalty=1.05, seed=seed)


def voices(front, told, count):
    """Requests of as many voices: some are a vector alone, some have codes and text too."""
    draw = np.random.default_rng(7)
    for i in range(count):
        codes = draw.integers(0, 64, (1 + i, 16)) if i % 3 else None
        vector = draw.standard_normal(front.config.talker.hidden).astype(np.float32)
        yield front.ids_request(
            told["ids"][: 4 + i % 4] + told["ids"][-5:],
            heard=HeardVoice(speaker=vector, codes=codes, ids=told["ref_ids"]),
            language=("english", "auto", "chinese")[i % 3],
            whole_text=bool(i % 2),
            sampling=sampling(i),
            ignore_stop_ids=True,
            max_new_tokens=9 + i,
            id=f"v{i}",
        )


def same(one, other):
    assert (one.ids, one.finish_reason) == (other.ids, other.finish_reason)
    assert one.items["sound"].shape == other.items["sound"].shape
    assert np.abs(one.items["sound"] - other.items["sound"]).max() < 2e-5


@pytest.mark.shared
@pytest.mark.parametrize(
    "text",
    [True, pytest.param(False, marks=pytest.mark.long)],
    ids=["whole text", "word by word"],
)
def test_a_seeded_request_alone_is_the_same_to_the_last_bit_in_every_way(tiny, tmp_path, text):
    """Resident and host-planned, captured and eager."""
    answers = {}
    for name, way in {"eager": EAGER, "host": HOST, "resident": CHECKED}.items():
        core, wired, report = opened(tiny.folder, tmp_path / name, *way, rows=(1,))
        front = wired.model.front()
        heard = None
        if front.config.imitates:
            vector = np.array(tiny.told["x_vector"], np.float32)
            codes = np.array(tiny.told["ref_codes"])
            heard = HeardVoice(speaker=vector, codes=codes, ids=tiny.told["ref_ids"])
        request = front.ids_request(
            tiny.told["ids"],
            voice="serena" if front.config.speakers else None,
            instruct=tiny.told.get("instruct", ()),
            heard=heard,
            whole_text=text,
            sampling=sampling(11),
            ignore_stop_ids=True,
            max_new_tokens=25,
        )
        (answers[name],) = played(core, [request]).values()
        resident = report.nodes[0].resident_walks
        assert resident == (("talker_decode",) if name == "resident" else ())
        assert core.stats()["by_walk"]["talker_decode"] == 24
        assert (core.stats()["replayed"] > 24) == (name != "eager")
    assert len(answers["eager"].ids) == 25
    for answer in answers.values():
        assert answer.ids == answers["eager"].ids
        assert answer.items["sound"].tobytes() == answers["eager"].items["sound"].tobytes()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("lag", "every"),
    [
        pytest.param(None, 1, marks=pytest.mark.long),
        pytest.param(Lag(seed=3), 1, marks=pytest.mark.long),
        (Lag(seed=3), 3),
    ],
    ids=["in time", "late", "late, every third alone"],
)
def test_sixteen_voices_at_once_are_each_as_it_is_alone(base, tmp_path, lag, every):
    sets = (*CHECKED, "engine.in_flight=2", "model.options.captured_frames=[1]")
    core, wired, _ = opened(base.folder, tmp_path, *sets, rows=(1, 16), lag=lag)
    front = wired.model.front()
    together = played(core, list(voices(front, base.told, 16)))
    counts, check = core.nodes["talker"].tables.counts, core.stats()["row_check"]
    assert counts.steps >= 23
    assert (check["steps"], check["mismatches"]) == (counts.steps, 0)
    assert len({tuple(answer.ids[:9]) for answer in together.values()}) == 16
    for request in list(voices(front, base.told, 16))[::every]:
        (alone,) = played(core, [request]).values()
        same(alone, together[request.id])


@pytest.mark.shared
def test_a_resident_talker_that_was_copied_out_goes_on_as_it_would_have(voice, tmp_path):
    """TT-07: its ring has moved, its row is written anew, and every place is checked."""
    core, wired, _ = opened(voice.folder, tmp_path, *CHECKED, "engine.in_flight=1")
    front = wired.model.front()
    asked = [
        front.ids_request(
            voice.told["ids"],
            voice="serena",
            sampling=sampling(i),
            ignore_stop_ids=True,
            max_new_tokens=40,
            id=f"a{i}",
        )
        for i in range(3)
    ]
    undisturbed = played(core, asked)
    for request in asked:
        core.submit(request)
    for frame in (2, 9, 30):
        while core.num_generated("a1") < frame:
            core.turn()
        assert core.offload("a1") is None
        for _ in range(6):
            core.turn()
        core.reload("a1")
    again = finished(core)
    assert core.stats()["offload"]["reloads"] == 3
    for name, answer in undisturbed.items():
        same(again[name], answer)


def comers(front, round_):
    """Requests of different texts, voices and lengths."""
    for i in range(12):
        yield front.ids_request(
            [70, 71, 72, *range(3, 4 + 3 * (i % 5)), 73, 74, 70, 71, 72],
            voice=("ann", "bo")[i % 2],
            instruct=range(5, 5 + 7 * (i % 3)),
            whole_text=bool(i % 2),
            sampling=sampling(100 * round_ + i),
            ignore_stop_ids=True,
            max_new_tokens=5 + 23 * i % 150,
            id=f"{round_}-{i}",
        )


@pytest.mark.parametrize("least", [300, pytest.param(5000, marks=pytest.mark.long)])
def test_no_cell_of_a_resident_talkers_tables_is_wrong(small, tmp_path, least):
    """Voices come and go, and some are ended by their callers."""
    way = (*CHECKED, "engine.in_flight=2", "model.load=random")
    core, wired, _ = opened(small, tmp_path, *way, rows=(2, 6))
    front, round_ = wired.model.front(), 0
    while core.stats()["row_check"]["steps"] < least:
        for i, request in enumerate(comers(front, round_)):
            core.submit(request)
            for _ in range(i * 3 % 17):
                core.turn()
            if i % 5 == 4:
                core.abort(f"{round_}-{i - 2}")
        finished(core)
        round_ += 1
    check = core.stats()["row_check"]
    assert (check["mismatches"], check["first"]) == (0, None)
