"""Sizes of the engine that must fit each other."""

import pytest

from mstar_core.config.schema import CaptureConfig, EngineConfig
from mstar_core.errors import ConfigError


@pytest.mark.parametrize(
    ("field", "sizes", "limit"),
    [("rows", (1, 9), "engine.max_rows, 8"), ("tokens", (16, 65), "engine.token_budget, 64")],
)
def test_a_captured_size_past_what_a_step_can_hold_is_refused(field, sizes, limit):
    capture = CaptureConfig(**{field: sizes})
    with pytest.raises(ConfigError) as caught:
        EngineConfig(max_rows=8, token_budget=64, capture=capture)
    assert caught.value.where == f"capture.{field}"
    assert limit in caught.value.want
