"""What the functions of ``sampling`` read of a step's plan."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class SamplePlan(Protocol):
    """What ``sample`` reads of a step's plan; the tensors only where ``sampled`` is not 0."""

    @property
    def temperature_B(self) -> Tensor:
        """fp32."""

    @property
    def top_k_B(self) -> Tensor:
        """int32; 0 or less is off."""

    @property
    def top_p_B(self) -> Tensor:
        """fp32; 1 is off."""

    @property
    def min_p_B(self) -> Tensor:
        """fp32; 0 is off."""

    @property
    def seed_B(self) -> Tensor:
        """int64."""

    @property
    def position_B(self) -> Tensor:
        """int64: absolute position of the token that is sampled."""

    @property
    def sampled(self) -> int:
        """0: every row is greedy, and only the argmax is taken; else each row as it says."""

    @property
    def top_logprobs(self) -> int:
        """How many of the likeliest ids to return; more than the vocabulary returns all."""


class PenaltyPlan(Protocol):
    """What ``penalise`` and ``count`` read of a step's plan."""

    @property
    def penalty_row_B(self) -> Tensor:
        """int64: the row of ``PenaltyRows``; 0 for rows without and for padding."""

    @property
    def repetition_B(self) -> Tensor:
        """fp32, above 0; 1 is off."""

    @property
    def presence_B(self) -> Tensor:
        """fp32."""

    @property
    def frequency_B(self) -> Tensor:
        """fp32."""


class EnterPlan(Protocol):
    """What ``enter`` reads: flat lists, padded with entries of row 0."""

    @property
    def fresh_row_B(self) -> Tensor:
        """int64: penalty rows that begin in this step and are cleared; 0 elsewhere."""

    @property
    def prompt_row_K(self) -> Tensor:
        """int64: the penalty row of each prompt id; 0 for padding."""

    @property
    def prompt_ids_K(self) -> Tensor:
        """int64, in the vocabulary."""

    @property
    def bias_row_K(self) -> Tensor:
        """int64: the penalty row of each bias; 0 for padding."""

    @property
    def bias_ids_K(self) -> Tensor:
        """int64, in the vocabulary; no (row, id) twice."""

    @property
    def bias_K(self) -> Tensor:
        """fp32."""
