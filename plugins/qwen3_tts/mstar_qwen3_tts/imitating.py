"""The talker of a base model: it also hears the voice that it is to imitate.

::

    speaker   a vector ─────────────────────────────► speaker ┐
    listen    mel frames ─► speaker encoder ────────► speaker ├ the request's slot, read by prefill
    know      codes ────────────────────┬───────────► frames  │
    hear      samples ─► codec encoder ─┴─► edge      frames  ┘

Of these walks a request takes those that it brings something for. The frames travel an edge to the
codec too, which goes on from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mstar_core.errors import ConfigError, Words
from mstar_core.model.base import NodeEnv
from mstar_core.model.walks import Input, Output, Walk
from mstar_qwen3_tts.config import RECORDED_FRAMES, TtsConfig
from mstar_qwen3_tts.ear_sizes import FRAME, EarSizes
from mstar_qwen3_tts.packed_columns import PackedColumns
from mstar_qwen3_tts.recording import MOST_MEL
from mstar_qwen3_tts.recording_encoder import RecordingEncoder
from mstar_qwen3_tts.speaker_encoder import SpeakerEncoder
from mstar_qwen3_tts.talker import SCRIPT, TalkerSubmodule

SPEAKER, LISTEN, KNOW, HEAR = "speaker", "listen", "know", "hear"
HEARD = "heard"
SPEAKERS_A_STEP = 8


class ImitatingTalker(TalkerSubmodule):
    """The talker's walks, and those by which it hears."""

    def __init__(self, config: TtsConfig, env: NodeEnv) -> None:
        super().__init__(config, env)
        ears = ears_of(config)
        self.speaker_encoder = SpeakerEncoder(ears.speaker, env.device)
        self.encoder = RecordingEncoder(ears.recording, env.device)

    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """``know`` and ``hear`` return ``heard``, int64 ``[frames, 16]``."""
        if walk not in (SPEAKER, LISTEN, KNOW, HEAR):
            if walk == SCRIPT:
                self._forget(plans[SCRIPT].slots_B)
            return super().forward(walk, inputs, plans)
        slots_B = plans[SCRIPT].slots_B
        if walk == SPEAKER:
            return self._meet(inputs["speaker"], slots_B)
        at_T = inputs[_AT[walk]]
        columns = PackedColumns.of(at_T, len(slots_B))
        if walk == LISTEN:
            return self._meet(self.speaker_encoder(inputs["mel"], columns), slots_B)
        if walk == HEAR:
            codes_TQ = self.encoder(inputs["recording"], inputs["valid"], columns)
        else:
            codes_TQ = inputs["reference"]
        self._kept[HEARD].index_put_((slots_B[columns.row_L], at_T), codes_TQ)
        return {HEARD: codes_TQ}

    def _forget(self, slots_B: Tensor) -> None:
        """What the slot's request before this one has heard."""
        self._kept[SPEAKER].index_fill_(0, slots_B, 0)
        self._kept[HEARD].index_fill_(0, slots_B, 0)

    def _meet(self, speaker_BH: Tensor, slots_B: Tensor) -> dict[str, Tensor]:
        kept = self._kept[SPEAKER]
        kept.index_copy_(0, slots_B, speaker_BH.to(kept.dtype))
        return {}

    def _codes(self, code_T: Tensor, plans: Mapping[str, Any]) -> Tensor:
        """Beside codec ids there are the speaker who was heard, and the frames."""
        slots_T = plans[SCRIPT].slots_B[plans["attention"].row_T.long()]
        speaker, first = len(self.code_table), len(self.code_table) + 1
        found_TH = super()._codes(code_T, plans)
        speaker_T1 = (code_T == speaker)[:, None]
        found_TH = torch.where(speaker_T1, self._kept[SPEAKER][slots_T], found_TH)
        frames_TQ = self._kept[HEARD][slots_T, (code_T - first).clamp(min=0)]
        return torch.where((code_T >= first)[:, None], self.frame(frames_TQ), found_TH)


_AT = {LISTEN: "mel_at", KNOW: "reference_at", HEAR: "recording_at"}
"""The input that says of each item its index among those of its request."""


def ears_of(config: TtsConfig) -> EarSizes:
    """The sizes of a base model's encoders."""
    if config.ears is None:
        raise ConfigError(
            where="tts_model_type",
            got=Words(config.mode),
            want="a base model, which hears",
            fix="use a Base checkpoint",
        )
    return config.ears


def kept_blocks(config: TtsConfig) -> dict[str, Any]:
    """What a request's slot keeps of the voice."""
    frames = (RECORDED_FRAMES, config.code_groups)
    return {SPEAKER: ((config.talker.hidden,), "model"), HEARD: (frames, torch.int64)}


def hearing_walks(config: TtsConfig) -> tuple[Walk, ...]:
    """The walks by which a request is told whom it imitates, in order."""
    books = (config.code_groups,)
    bins = ears_of(config).speaker.bins
    shared: dict[str, Any] = {
        "node": "talker",
        "feed": "prompt",
        "capture": False,
        "optional": True,
    }
    frames: dict[str, Any] = {
        **shared,
        "max_items": RECORDED_FRAMES,
        "outputs": (Output(name=HEARD, shape=books, edge=HEARD),),
    }
    vector = Input(name="speaker", dtype="model", shape=(config.talker.hidden,))
    mel = Input(name="mel", dtype="float32", shape=(bins,))
    codes = Input(name="reference", shape=books, below=config.decoder.codebook_size)
    samples = Input(name="recording", dtype="float32", shape=(FRAME,))
    return (
        Walk(name=SPEAKER, inputs=(vector,), max_items=SPEAKERS_A_STEP, **shared),
        Walk(name=LISTEN, inputs=(mel, _at(LISTEN, MOST_MEL)), max_items=MOST_MEL, **shared),
        Walk(name=KNOW, inputs=(codes, _at(KNOW, RECORDED_FRAMES)), **frames),
        Walk(
            name=HEAR,
            inputs=(
                samples,
                _at(HEAR, RECORDED_FRAMES),
                Input(name="valid", below=FRAME + 1),
            ),
            **frames,
        ),
    )


def _at(walk: str, most: int) -> Input:
    return Input(name=_AT[walk], below=most)
