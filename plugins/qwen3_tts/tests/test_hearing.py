"""A base model hears a recording: the published vector and codes, and a voice that goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from mstar_qwen3_tts.config import CODEC_FOLDER, read_config
from mstar_qwen3_tts.ear_sizes import FRAME
from mstar_qwen3_tts.front import Qwen3TTSFront
from mstar_qwen3_tts.heard import HeardVoice
from mstar_qwen3_tts.mel import log_mel
from mstar_qwen3_tts.options import Qwen3TTSOptions
from mstar_qwen3_tts.packed_columns import PackedColumns
from mstar_qwen3_tts.plugin import provide_backends
from mstar_qwen3_tts.recording import Recording
from mstar_qwen3_tts.recording_encoder import RecordingEncoder
from mstar_qwen3_tts.speaker_encoder import SpeakerEncoder
from safetensors.torch import load_file

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import RequestError
from mstar_core.model.load import finalise
from mstar_core.resample import resample
from mstar_core.testing.cores import open_wired, results

pytestmark = pytest.mark.shared
MODEL = "mstar_qwen3_tts.model:Qwen3TTS"
RATE = 24_000
LENGTHS = (RATE, 30_001, 20 * FRAME, 25_077, 24_961, 2 * RATE + 1)
EAGER = ("engine.graphs=off", "model.dtype=fp32")
FEW = "model.options.captured_frames=[1,4]"
RESIDENT = ("engine.graphs=recorder", "engine.capture.tokens=[64]", "debug.row_check=true", FEW)
PENALTY = SamplingSettings(repetition_penalty=1.05)


def voiced(count, seed=0, rate=RATE):
    """Samples that rise and fall around a pitch, and breath."""
    time_T, rng = np.arange(count) / rate, np.random.default_rng(seed)
    pitch_T = 110 + 20 * seed + 15 * np.sin(2 * np.pi * 1.7 * time_T)
    phase_T = 2 * np.pi * np.cumsum(pitch_T) / rate
    sound_T = sum(np.sin(n * phase_T) / n for n in range(1, 12))
    loud_T = 0.5 + 0.5 * np.sin(2 * np.pi * 2.3 * time_T + seed)
    breath_T = rng.normal(0, 0.01, count)
    return (0.2 * sound_T * loud_T + breath_T).astype(np.float32)


@pytest.fixture
def ears(base):
    """Both encoders with the checkpoint's weights, and the reference's equations over them."""
    config = read_config(base.folder)
    weights = load_file(base.folder / "model.safetensors")
    codec = load_file(base.folder / CODEC_FOLDER / "model.safetensors")
    speaker = SpeakerEncoder(config.ears.speaker, torch.device("cpu"))
    recording = RecordingEncoder(config.ears.recording, torch.device("cpu"))
    speaker.load_state_dict(_inside(weights, "speaker_encoder."))
    missing, _ = recording.load_state_dict(_inside(codec, "encoder."), strict=False)
    assert not missing
    finalise({"speaker": speaker, "recording": recording})
    with torch.no_grad():
        yield speaker, recording, weights, codec


def _inside(weights, prefix):
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


@pytest.fixture
def published(equations, base, monkeypatch):
    """``published(kind)(weights, samples)``: the reference's vector or codes."""
    monkeypatch.syspath_prepend(str(base_folder(equations)))
    config = json.loads((base.folder / "config.json").read_text())
    codec = json.loads((base.folder / CODEC_FOLDER / "config.json").read_text())
    return {
        "speaker": lambda w, x: equations.speaker_embedding(w, config, torch.from_numpy(x)),
        "codes": lambda w, x: equations.codec_encode(w, codec, torch.from_numpy(x)),
    }


def base_folder(module):
    return module.__spec__.origin.rpartition("/")[0]


def columns(counts):
    at_L = torch.cat([torch.arange(count) for count in counts])
    return PackedColumns.of(at_L, len(counts))


def test_speakers_heard_together_have_the_published_vectors(ears, published):
    speaker, _, weights, _ = ears
    sounds = [voiced(count, seed) for seed, count in enumerate(LENGTHS)]
    mels = [log_mel(sound, 128) for sound in sounds]
    assert [len(mel) for mel in mels] == [count // 256 for count in LENGTHS]
    found = speaker(torch.from_numpy(np.concatenate(mels)), columns([len(m) for m in mels]))
    for sound, vector in zip(sounds, found, strict=True):
        want = published["speaker"](weights, sound)
        assert (vector - want).abs().max() < 2e-5


def test_recordings_heard_together_have_the_published_codes(ears, published):
    """Of any length: what is missing of a last frame is as if it were not there."""
    _, recording, _, codec = ears
    heard = [Recording(samples=voiced(n, i), text="x") for i, n in enumerate(LENGTHS)]
    given = [torch.from_numpy(_frames(one.samples)) for one in heard]
    valid = [_valid(one.samples) for one in heard]
    counts = [one.num_frames for one in heard]
    codes_TQ = recording(torch.cat(given), torch.cat(valid), columns(counts))
    for one, codes in zip(heard, codes_TQ.split(counts), strict=True):
        want = published["codes"](codec, torch.from_numpy(one.samples).numpy())
        assert torch.equal(codes, want)
        assert len(want.unique()) > 20


def _frames(samples_T):
    return np.pad(samples_T, (0, -len(samples_T) % FRAME)).reshape(-1, FRAME)


def _valid(samples_T):
    valid = torch.full((-(-len(samples_T) // FRAME),), FRAME)
    valid[-1] -= -len(samples_T) % FRAME
    return valid


def opened(base, tmp_path, *sets, rows=4):
    sizes = (f"engine.max_rows={rows}", "engine.token_budget=64")
    small = ("nodes.talker.resources.kv.page_tokens=8",)
    sets = (*sizes, *small, *sets)
    return open_wired(MODEL, tmp_path, sets, checkpoint=base.folder, backends=provide_backends)


def played(core, requests):
    for request in requests:
        core.submit(request)
    while core.turn():
        pass
    core.check_conserved()
    own = results(core)
    return [own[r.id] for r in requests]


def asked(front, told, heard, **options):
    given = {"max_new_tokens": 9, "sampling": PENALTY, "language": "english", **options}
    return front.ids_request(told["ids"], heard=heard, ignore_stop_ids=True, **given)


@pytest.mark.parametrize("whole_text", [True, False])
@pytest.mark.parametrize("speaker_only", [False, True])
@pytest.mark.parametrize("way", [EAGER, RESIDENT], ids=["eager", "resident"])
def test_a_recording_is_imitated_as_the_published_numbers_of_it_are(
    base, ears, published, tmp_path, way, speaker_only, whole_text
):
    """TT-05: with the recording, and with its vector and codes, the same codes and sound."""
    told, sound = base.told, voiced(41_000, 3)
    core, wired, _ = opened(base, tmp_path, *way, "engine.in_flight=1", "model.dtype=fp32")
    front = wired.model.front()
    recording = Recording.of(sound, RATE, ids=told["ref_ids"], speaker_only=speaker_only)
    _, _, weights, codec = ears
    numbers = HeardVoice(
        speaker=published["speaker"](weights, sound).numpy(),
        codes=None if speaker_only else published["codes"](codec, sound).numpy(),
        ids=told["ref_ids"],
    )
    ways = (recording, numbers, HeardVoice(speaker=-numbers.speaker))
    heard, known, other = (
        played(core, [asked(front, told, each, whole_text=whole_text)])[0] for each in ways
    )
    assert heard.ids == known.ids
    assert np.abs(heard.items["sound"] - known.items["sound"]).max() < 1e-5
    assert other.ids != heard.ids
    core.check_rows()


def test_recordings_of_a_step_are_each_heard_alone(base, tmp_path):
    """Those who only give numbers, or only a voice, are in it too; slots are used again."""
    core, wired, _ = opened(base, tmp_path, *EAGER, "engine.in_flight=2")
    front, told = wired.model.front(), base.told

    def given():
        for i in range(9):
            sound = voiced(RATE + 3_001 * i, i)
            heard = Recording.of(sound, RATE, ids=told["ref_ids"], speaker_only=i % 4 == 3)
            if i % 4 == 2:
                codes = np.full((3 + i, 16), i)
                speaker = np.full(64, 0.1 * i, np.float32)
                heard = HeardVoice(speaker=speaker, codes=codes, ids=told["ref_ids"])
            yield asked(front, told, heard, whole_text=bool(i % 2), max_new_tokens=4 + i)

    together = played(core, list(given()))
    assert len({tuple(answer.ids[:3]) for answer in together}) > 5
    for request, answer in zip(given(), together, strict=True):
        (alone,) = played(core, [request])
        assert alone.ids == answer.ids
        assert np.abs(alone.items["sound"] - answer.items["sound"]).max() < 2e-5


@pytest.fixture
def front(base):
    return Qwen3TTSFront(base.folder, read_config(base.folder), Qwen3TTSOptions())


def told_of(front, sound, rate):
    return front.heard(sound, rate, "Hello there").arrays(front.config)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
def test_a_recording_at_another_rate_is_the_same_voice(front, ears, rate):
    """TT-14"""
    speaker, _, _, _ = ears
    narrow = resample(resample(voiced(3 * RATE, 1), RATE, 8_000), 8_000, RATE)
    sound = resample(narrow, RATE, rate)
    stereo = np.stack([sound, sound], axis=1)
    want = _vector(speaker, told_of(front, narrow, RATE))
    for each in (sound, stereo):
        assert _alike(_vector(speaker, told_of(front, each, rate)), want) > 0.99


@pytest.mark.parametrize(
    "changed",
    [lambda x: 0.01 * x, lambda x: 0.5 * x + 0.2, lambda x: 0.01 * x + 0.03],
    ids=["40 dB down", "off zero", "both"],
)
def test_a_quiet_or_shifted_recording_is_the_same_voice(front, ears, changed):
    """TT-14"""
    speaker, _, _, _ = ears
    sound = voiced(3 * RATE, 2)
    want = _vector(speaker, told_of(front, sound * np.float32(0.5 / np.abs(sound).max()), RATE))
    assert _alike(_vector(speaker, told_of(front, changed(sound), RATE)), want) > 0.99


def test_an_ordinary_recording_is_heard_as_it_is(front):
    sound = voiced(2 * RATE)
    arrays = told_of(front, sound, RATE)
    assert np.array_equal(arrays["recording"].ravel()[: len(sound)], sound)
    assert arrays["valid"].sum() == len(sound)
    assert arrays["recording"].shape == (25, FRAME)


def _vector(speaker, arrays):
    mel = torch.from_numpy(arrays["mel"])
    return speaker(mel, columns([len(mel)]))[0]


def _alike(one, other):
    return torch.nn.functional.cosine_similarity(one, other, dim=0)


@pytest.mark.parametrize(
    ("sound", "want"),
    [
        (voiced(4_800), "at least 1 second"),
        (voiced(31 * RATE), "at most 30 seconds"),
        (np.zeros(2 * RATE, np.float32), "a voice"),
        (np.full(2 * RATE, 0.25, np.float32), "a voice"),
        (np.zeros(0, np.float32), "at least one sample"),
        (np.full(2 * RATE, np.nan, np.float32), "floating point"),
    ],
    ids=["0.2 s", "31 s", "silence", "a constant", "nothing", "nan"],
)
def test_sound_that_is_no_recording_of_a_voice_is_refused(front, sound, want):
    """TT-10, TT-14"""
    with pytest.raises(RequestError, match=want) as caught:
        front.heard(sound, RATE, "Hello")
    assert caught.value.where == "reference"


@pytest.mark.parametrize("text", [None, "", " "])
def test_a_recording_without_its_text_is_refused_unless_only_the_speaker_counts(front, text):
    """TT-10"""
    given = {"reference": voiced(RATE), "reference_rate": RATE, "reference_text": text}
    request = front.ids_request(range(20), heard=front.heard(**given, speaker_only=True))
    assert "recording" not in request.arrays
    with pytest.raises(RequestError) as caught:
        front.speech_request("Hello", **given)
    assert caught.value.where == "reference_text"


def test_a_voice_by_name_beside_a_recording_is_refused(front):
    """TT-10"""
    with pytest.raises(RequestError) as caught:
        front.ids_request(range(20), voice="serena", heard=front.heard(voiced(RATE), RATE, "Hi"))
    assert caught.value.where == "voice"


def test_a_model_of_named_voices_refuses_a_recording(golden):
    """TT-11"""
    folder = golden / "qwen3_tts-tiny-0b6-custom_voice"
    front = Qwen3TTSFront(folder, read_config(folder), Qwen3TTSOptions())
    assert "reference" not in front.speech_options()
    given = {"reference": voiced(RATE), "reference_rate": RATE, "reference_text": "Hello"}
    for speak in (front.speech_request, front.speech_requests):
        with pytest.raises(RequestError, match="use a Base checkpoint") as caught:
            speak("Hello", voice="serena", **given)
        assert caught.value.where == "reference"
