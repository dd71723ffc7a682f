"""Every published size: it builds on meta, and its weight map fits the published tensors."""

from __future__ import annotations

import json
import re

import pytest
import torch
from mstar_whisper.model import Whisper
from mstar_whisper.options import WhisperOptions

from mstar_core.errors import CheckpointError, ConfigError
from mstar_core.model.graph import check_graph
from mstar_core.model.walks import walks_of
from mstar_core.model.weights import plan_weights

SIZES = ("whisper-tiny.en", "whisper-large-v3", "whisper-large-v3-turbo")
FILES = ("config", "generation_config", "preprocessor_config")


def published(sizes, name, folder):
    """A folder with the published JSON files of a size, and no weights."""
    given = json.loads((sizes / "configs" / f"{name}.json").read_text())
    for file in FILES:
        (folder / f"{file}.json").write_text(json.dumps(given[file]))
    return folder


def tensors(sizes, name):
    """Name → shape of every published tensor; ``{0..3}`` stands for layers."""
    listing = json.loads((sizes / "weights" / f"{name}.json").read_text())
    shapes = {}
    for key in listing["keys"]:
        span = re.search(r"\{(\d+)\.\.(\d+)\}", key["name"])
        layers = range(int(span[1]), int(span[2]) + 1) if span else [0]
        for layer in layers:
            full = key["name"].replace(span[0], str(layer)) if span else key["name"]
            shapes[full] = tuple(key["shape"])
    assert len(shapes) == listing["tensors"]
    return shapes


@pytest.mark.shared
@pytest.mark.parametrize("name", SIZES)
def test_a_published_size_takes_exactly_the_published_tensors(sizes, bench, tmp_path, name):
    made = bench(published(sizes, name, tmp_path), rows=1, device="meta")
    plan = plan_weights(made.modules, made.maps, tensors(sizes, name))
    assert plan.set_aside == ()
    used = {piece.name for fill in plan.fills for piece in fill.pieces}
    assert used == set(tensors(sizes, name))


@pytest.mark.shared
def test_the_head_may_be_stored_under_its_own_name_too(sizes, bench, tmp_path):
    made = bench(published(sizes, SIZES[0], tmp_path), rows=1, device="meta")
    stored = tensors(sizes, SIZES[0])
    table = stored["model.decoder.embed_tokens.weight"]
    plan_weights(made.modules, made.maps, stored | {"proj_out.weight": table})
    del stored["model.encoder.conv1.bias"]
    with pytest.raises(CheckpointError, match=r"missing .*encoder\.conv1\.bias"):
        plan_weights(made.modules, made.maps, stored)


@pytest.mark.shared
@pytest.mark.parametrize("name", SIZES)
def test_a_published_size_declares_a_graph_that_holds(sizes, tmp_path, name):
    """WH-15: the window's pool is as long as the encoder's output, whatever the context is."""
    model = Whisper.open(published(sizes, name, tmp_path), WhisperOptions())
    check_graph(model.nodes(), model.edges(), model.graph())
    assert list(walks_of(model.graph())) == ["encode", "cross", "align", "prefill", "decode"]
    options = {spec.key: spec.options for spec in model.nodes()[1].resources}
    assert options["cross_kv"]["max_tokens"] == 1500
    assert model.max_context == 448
    assert model.config.window_seconds == 30
    assert model.default_dtype() == getattr(torch, model.config.dtype)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "count"), [("whisper-large-v3", 100), ("whisper-tiny.en", 0)])
def test_languages_come_from_the_checkpoint(sizes, tmp_path, name, count):
    folder = published(sizes, name, tmp_path)
    tokens = Whisper.open(folder, WhisperOptions()).config.tokens
    assert len(tokens.languages) == count
    assert tokens.multilingual == bool(count)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "language"), [("whisper-large-v3", "xx"), (SIZES[0], "en")])
def test_a_default_language_that_the_model_lacks_is_refused_at_load(
    sizes, tmp_path, name, language
):
    with pytest.raises(ConfigError, match="default_language"):
        Whisper.open(published(sizes, name, tmp_path), WhisperOptions(default_language=language))
