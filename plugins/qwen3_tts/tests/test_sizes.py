"""Every published size: it builds on meta, and its weight maps fit the published tensors."""

from __future__ import annotations

import json
import re

import pytest
import torch
from mstar_qwen3_tts.config import CODEC_FOLDER
from mstar_qwen3_tts.model import Qwen3TTS
from mstar_qwen3_tts.options import Qwen3TTSOptions

from mstar_core.errors import CheckpointError, ConfigError
from mstar_core.model.graph import check_graph
from mstar_core.model.walks import walks_of
from mstar_core.model.weights import plan_weights

SIZES = ("0.6B-Base", "0.6B-CustomVoice", "1.7B-Base", "1.7B-CustomVoice", "1.7B-VoiceDesign")


def published(sizes, name, folder):
    """A folder with the published JSON files of a size, and no weights."""
    given = json.loads((sizes / "configs" / f"Qwen3-TTS-12Hz-{name}.json").read_text())
    codec = json.loads((sizes / "configs" / "Qwen3-TTS-Tokenizer-12Hz.json").read_text())
    (folder / CODEC_FOLDER).mkdir()
    (folder / CODEC_FOLDER / "config.json").write_text(json.dumps(codec["config"]))
    for file in ("config", "generation_config"):
        (folder / f"{file}.json").write_text(json.dumps(given[file]))
    return folder


def tensors(sizes, name):
    """Name → shape of every published tensor; ``{0..3}`` stands for indices."""
    listing = json.loads((sizes / "weights" / f"Qwen3-TTS-{name}.json").read_text())
    shapes = {}
    for key in listing["keys"]:
        for full in unfolded(key["name"]):
            shapes[full] = tuple(key["shape"])
    assert len(shapes) == listing["tensors"]
    return shapes


def unfolded(name):
    """The names that ``name`` stands for: ``{0..3}`` a range, ``{9,14}`` a list."""
    span = re.search(r"\{(\d+)(\.\.|,)(\d+)\}", name)
    if span is None:
        return [name]
    first, last = int(span[1]), int(span[3])
    numbers = range(first, last + 1) if span[2] == ".." else (first, last)
    return [each for n in numbers for each in unfolded(name.replace(span[0], str(n), 1))]


@pytest.mark.shared
@pytest.mark.parametrize("name", SIZES)
def test_a_published_size_takes_exactly_the_published_tensors(sizes, on_meta, tmp_path, name):
    folder = published(sizes, name, tmp_path)
    model = Qwen3TTS.open(folder, Qwen3TTSOptions())
    stored = tensors(sizes, f"12Hz-{name}") | tensors(sizes, "Tokenizer-12Hz")
    modules = on_meta(model)
    maps = {node: model.weight_map(node) for node in modules}
    plan = plan_weights(modules, maps, stored)
    aside = [n for n in plan.set_aside if not n.startswith("encoder.")]
    assert aside == [
        f"decoder.quantizer.rvq_{half}.input_proj.weight" for half in ("first", "rest")
    ]
    left = {n.split(".", 1)[1] for n in plan.set_aside if n.startswith("encoder.")}
    if name.endswith("Base"):  # books behind the sixteenth, and what only a decoder needs
        unused = re.compile(
            r"quantizer\.(.*output_proj.*|.*\.initialized|acoustic.*\.(1[5-9]|[23]\d)\..*)"
        )
        assert all(unused.fullmatch(n) for n in left)
        assert sum(p.numel() for p in modules["talker"].speaker_encoder.parameters()) == (
            8_854_336 if name.startswith("0.6B") else 12_001_088
        )
    else:
        assert "encoder.layers.0.conv.weight" in left
    codec = sum(p.numel() for p in modules["codec"].parameters())
    assert codec == 114_323_137 - 2 * 256 * 512
    del stored["talker.codec_head.weight"]
    with pytest.raises(CheckpointError, match=r"missing .*talker\.codec_head"):
        plan_weights(modules, maps, stored)


@pytest.mark.shared
@pytest.mark.parametrize("name", SIZES)
def test_a_published_size_declares_a_graph_that_holds(sizes, tmp_path, name):
    model = Qwen3TTS.open(published(sizes, name, tmp_path), Qwen3TTSOptions())
    check_graph(model.nodes(), model.edges(), model.graph())
    heard = ["speaker", "listen", "know", "hear", "recall"] if name.endswith("Base") else []
    walks = ["script", *heard, "prefill", "talker_decode", "voice"]
    assert list(walks_of(model.graph())) == walks
    assert model.max_context == 32768
    assert model.config.decoder.samples_per_frame == 1920
    assert model.default_dtype() == torch.bfloat16
    assert model.front().defaults.penalty == 1.05
    assert model.config.obeys == (name in ("1.7B-CustomVoice", "1.7B-VoiceDesign"))


@pytest.mark.shared
def test_voices_and_languages_come_from_the_checkpoint(sizes, tmp_path):
    model = Qwen3TTS.open(published(sizes, "1.7B-CustomVoice", tmp_path), Qwen3TTSOptions())
    traits = model.front().traits()
    assert traits["sample_rate"] == 24000
    assert len(traits["voices"]) == 9
    assert len(traits["languages"]) == 13
    assert dict(model.config.dialects) == {"dylan": "beijing_dialect", "eric": "sichuan_dialect"}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("options", "where"),
    [({"default_voice": "nobody"}, "default_voice"), ({"default_language": "xx"}, "language")],
)
def test_a_default_that_the_model_lacks_is_refused_at_load(sizes, tmp_path, options, where):
    folder = published(sizes, "0.6B-CustomVoice", tmp_path)
    with pytest.raises(ConfigError, match=where):
        Qwen3TTS.open(folder, Qwen3TTSOptions(**options))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("tts_model_type", "singing", "tts_model_type"),
        ("model_type", "whisper", "another model"),
        ("tts_pad_token_id", None, "tts_pad_token_id"),
        ("talker_config.num_code_groups", 8, "num_code_groups"),
        ("talker_config.hidden_act", "gelu", "hidden_act"),
        ("talker_config.spk_is_dialect", {"eric": "martian"}, "spk_is_dialect.eric"),
        ("talker_config.spk_id", {"eric": 4000}, "spk_id.eric"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(sizes, tmp_path, field, value, named):
    folder = published(sizes, "0.6B-CustomVoice", tmp_path)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    *path, last = field.split(".")
    inner = config
    for each in path:
        inner = inner[each]
    inner[last] = value
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=named):
        Qwen3TTS.open(folder, Qwen3TTSOptions())


@pytest.mark.shared
def test_a_checkpoint_without_its_codec_says_where_it_belongs(sizes, tmp_path):
    folder = published(sizes, "0.6B-CustomVoice", tmp_path)
    (folder / CODEC_FOLDER / "config.json").unlink()
    with pytest.raises(CheckpointError, match="speech_tokenizer"):
        Qwen3TTS.open(folder, Qwen3TTSOptions())
