"""The requests of a plan beside its answers: what language is spoken, and when each token was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mstar_core.config.sampling import SamplingSettings
from mstar_core.model.front import Request
from mstar_whisper.config import Tokens
from mstar_whisper.judging import Judged

LANGUAGES = "languages"
"""The name of the rule that leaves the ids of languages alone."""
SUPPRESS = "suppress"
"""The name of the rule that lets some ids never be sampled."""


def language_request(tokens: Tokens, mel: np.ndarray) -> Request:
    """What language is spoken in the window ``mel`` ``[bins, frames]``: a token, which names it."""
    return Request(
        arrays={"mel": mel[None], "ids": np.asarray([tokens.sot], dtype=np.int64)},
        max_new_tokens=1,
        sampling=SamplingSettings(logprobs=0),
        settings={"sampler_rules": {SUPPRESS: False, LANGUAGES: True}},
    )


def alignment_request(
    tokens: Tokens, mel: np.ndarray, prompt: Sequence[int], judged: Judged, positions: int
) -> Request:
    """Where each token of ``judged``, behind ``prompt``, was said in the window ``mel``.

    ``positions`` of the window hold sound. The token that it yields says nothing.
    """
    *said, last = [*prompt, *judged.ids, *([tokens.eot] if judged.ended else [])]
    within = np.zeros(len(said), np.int64)
    within[len(prompt) :] = positions
    return Request(
        arrays={
            "mel": mel[None],
            "said": np.asarray(said, dtype=np.int64),
            "within": within,
            "ids": np.asarray([last], dtype=np.int64),
        },
        max_new_tokens=1,
    )
