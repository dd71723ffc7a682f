"""The generation defaults of a checkpoint folder."""

import pytest

from mstar_core.config import generation_defaults
from mstar_core.errors import CheckpointError


def test_the_defaults_are_read_by_name_and_private_keys_are_left_out(tmp_path):
    text = '{"_from_model_config": true, "eos_token_id": [2, 11], "top_k": 20}'
    (tmp_path / "generation_config.json").write_text(text)
    assert generation_defaults(tmp_path) == {"eos_token_id": [2, 11], "top_k": 20}


def test_a_folder_without_the_file_has_none(tmp_path):
    assert generation_defaults(tmp_path) == {}


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_a_broken_file_is_named(tmp_path, text):
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        generation_defaults(tmp_path)
