"""Penalty rows: what a request has said and what it is biased to, per vocabulary id.

::

    row 0   all zero for ever: requests that need none, rows that do not sample, padding
    row 1…  one per request with penalties or a bias, for life

A row is cleared and gets the prompt and the bias in the first step that samples; from then on
each chosen token is counted in the step that chose it, so no step waits for the host.
"""

from __future__ import annotations

import numpy as np
import torch

from mstar_core.config.sampling import MAX_BIASES
from mstar_core.ops.sampling import PenaltyRows
from mstar_core.resources.base import BuildEnv
from mstar_core.resources.sampler.table import SettingsTable


def claim_rows(key: str, num_rows: int, vocab: int, env: BuildEnv) -> PenaltyRows:
    """Rows for ``num_rows`` requests, and row 0."""
    shape = (num_rows + 1, vocab)
    return PenaltyRows(
        prompt_RV=env.claim(key, "prompt", shape, torch.bool),
        count_RV=env.claim(key, "count", shape, torch.int32),
        bias_RV=env.claim(key, "bias", shape, torch.float32),
    )


def entries(table: SettingsTable, handles_R: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of a plan that begin the penalty rows of ``handles_R``."""
    rows = table.penalty_row[handles_R]
    prompts = [_ids(table.prompt[h], table.vocab) for h in handles_R]
    biases = [table.bias[h] for h in handles_R]
    return {
        "fresh_row_B": rows,
        "prompt_row_K": np.repeat(rows, [len(ids) for ids in prompts]),
        "prompt_ids_K": np.concatenate([*prompts, np.zeros(0, np.int64)]),
        "bias_row_K": np.repeat(rows, [len(bias) for bias in biases]),
        "bias_ids_K": np.array([i for bias in biases for i in bias], dtype=np.int64),
        "bias_K": np.array([x for bias in biases for x in bias.values()], dtype=np.float32),
    }


def padded(fields: dict[str, np.ndarray], num_rows: int, num_ids: int) -> dict[str, np.ndarray]:
    """The same at their largest: ``num_rows`` rows, each with ``num_ids`` ids of its prompt."""
    bounds = {"fresh": num_rows, "prompt": num_rows * num_ids, "bias": num_rows * MAX_BIASES}
    wide = {}
    for name, values in fields.items():
        wide[name] = np.zeros(bounds[name.split("_")[0]], values.dtype)
        wide[name][: len(values)] = values
    return wide


def _ids(prompt: object, vocab: int) -> np.ndarray:
    """Each id of the prompt once; ids that are never sampled are left out."""
    ids = np.zeros(0, np.int64) if prompt is None else np.unique(np.asarray(prompt, np.int64))
    kept: np.ndarray = ids[(ids >= 0) & (ids < vocab)]
    return kept
