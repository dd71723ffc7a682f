"""The kit's contract of a model, on a small checkpoint that transformers makes on the spot."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mstar_core.testing import ModelContract, PluginContract

VOCAB, EOT, SOT, PREVIOUS, NO_STAMPS = 140, 100, 101, 106, 108
SUPPRESS, FIRST = [1, 2, 7, SOT, PREVIOUS], [20, EOT]
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_mel_bins": 80,
    "max_source_positions": 50,
    "max_target_positions": 96,
    "vocab_size": VOCAB,
}
CONTROL = {
    "bos_token_id": SOT,
    "eos_token_id": EOT,
    "pad_token_id": EOT,
    "decoder_start_token_id": SOT,
}
GENERATION = CONTROL | {
    "is_multilingual": False,
    "prev_sot_token_id": PREVIOUS,
    "no_timestamps_token_id": NO_STAMPS,
    "suppress_tokens": SUPPRESS,
    "begin_suppress_tokens": FIRST,
    "max_initial_timestamp_index": 10,
}


def make_reference():
    """A reference model whose greedy tokens vary: wide weights, small token table."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig(**SIZES, **CONTROL)).eval()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                wide = 0.3 if "embed_tokens" in name else 2.0 / weight[0].numel() ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=draw) * wide)
    return model


def write_checkpoint(model, folder):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    model.save_pretrained(folder)
    vocab = {f"w{i}": i for i in range(EOT)}
    Tokenizer(WordLevel(vocab, unk_token="w0")).save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))


class Contract(ModelContract):
    """Both contracts below run on one checkpoint."""

    config = "whisper"
    timestamps = False

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def checkpoint(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("checkpoint")
        cls.reference = make_reference()
        write_checkpoint(cls.reference, folder)
        path = (f"model.path={folder}", "nodes.decoder.resources.kv.page_tokens=8")
        cls.sets = (*ModelContract.sets, *path)

    def requests(self, front):
        draw = np.random.default_rng(5)
        return [
            front.audio_request(
                (draw.standard_normal(4000 * (i + 1)) * 0.05 * (i + 1)).astype(np.float32),
                16000,
                timestamps=self.timestamps,
                prompt=" ".join(f"w{n}" for n in draw.integers(3, 99, words)),
                max_new_tokens=12 + i,
            )
            for i, words in enumerate((0, 3, 20, 40))
        ]


class TestTextKeepsTheContract(Contract):
    def oracle(self, request):
        ids, banned = request.arrays["ids"].tolist(), SUPPRESS + FIRST
        mel, start = torch.from_numpy(request.arrays["mel"]), len(request.arrays["ids"])
        while len(ids) - start < request.max_new_tokens and ids[-1] != EOT:
            with torch.inference_mode():
                run = self.reference(input_features=mel, decoder_input_ids=torch.tensor([ids]))
            logits = run.logits[0, -1].clone()
            logits[banned] = float("-inf")
            ids.append(int(logits.argmax()))
            banned = SUPPRESS
        return ids[start:]


class TestTimestampsKeepTheContract(Contract):
    timestamps = True


class TestThePlugin(PluginContract):
    name = "whisper"
