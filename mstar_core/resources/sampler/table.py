"""The sampling settings of every request, as columns."""

from __future__ import annotations

import secrets

import numpy as np

from mstar_core.config.sampling import SamplingSettings
from mstar_core.resources.base import Opening
from mstar_core.resources.sampler.plan import PENALISED, SAMPLED, TOP_LOGPROBS
from mstar_core.resources.sampler.rules import LogitRule
from mstar_core.resources.table import RequestTable

FLOATS = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
NEUTRAL = np.array([0, 1, 0, 1, 0, 0], dtype=np.float32)
"""The settings of a row that takes the likeliest token."""


class SettingsTable:
    """One line per request: its settings, how far it is, and what waits for its first token."""

    def __init__(self, table: RequestTable, rules: tuple[LogitRule, ...], vocab: int) -> None:
        self._rules = rules
        self.vocab = vocab
        self.floats = table.column(np.float32, shape=(len(FLOATS),))
        """In the order of ``FLOATS``."""
        self.top_k = table.column(np.int32)
        self.seed = table.column(np.int64)
        self.top_logprobs = table.column(np.int32)
        self.needs = table.column(np.int64)
        """Variant bits of the request."""
        self.enabled = table.column(np.bool_, shape=(len(rules),))
        self.length = table.column(np.int64)
        """Tokens in the stream, steps in flight included."""
        self.generated = table.column(np.int32)
        """Tokens chosen, steps in flight included."""
        self.penalty_row = table.column(np.int64)
        """0: none."""
        self.prompt = table.column(object, None)
        """The prompt's ids of a request with a penalty row."""
        self.bias = table.column(object, None)
        """The logit bias of a request with a penalty row."""

    def fill(self, handle: int, settings: SamplingSettings, opening: Opening) -> None:
        """Write a request's line."""
        s = settings
        self.floats[handle] = (
            s.temperature,
            s.top_p,
            s.min_p,
            s.repetition_penalty,
            s.presence_penalty,
            s.frequency_penalty,
        )
        self.top_k[handle] = 0 if s.top_k < 1 else min(s.top_k, self.vocab)
        self.seed[handle] = secrets.randbits(63) if s.seed is None else s.seed
        self.top_logprobs[handle] = s.logprobs or 0
        self.generated[handle] = opening.generated
        self.needs[handle] = (
            (0 if s.is_greedy else SAMPLED)
            | (PENALISED if s.needs_row else 0)
            | (TOP_LOGPROBS if s.logprobs else 0)
        )
        wanted = opening.settings.get("sampler_rules", {})
        self.enabled[handle] = [wanted.get(r.name, r.default) for r in self._rules]
        if s.needs_row:
            self.prompt[handle] = opening.prompt_ids
            self.bias[handle] = dict(s.logit_bias)

    def clear(self, handle: int) -> None:
        """Forget a request."""
        self.floats[handle] = 0
        self.length[handle] = self.generated[handle] = self.needs[handle] = 0
        self.penalty_row[handle] = 0
        self.prompt[handle] = self.bias[handle] = None
