"""The kit's contracts, on noise as weights: no reference is needed."""

from __future__ import annotations

import pytest

from mstar_core.config.sampling import SamplingSettings
from mstar_core.testing import ModelContract, PluginContract


class TestTheModelKeepsTheContract(ModelContract):
    config = "qwen3_tts"
    captures = True

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def checkpoint(cls, small):
        small_pages = "nodes.talker.resources.kv.page_tokens=8"
        few = "model.options.captured_frames=[1,4]"
        where = (f"model.path={small}", "model.load=random", small_pages, few)
        cls.sets = (*ModelContract.sets, *where)

    def requests(self, front):
        return [
            front.ids_request(
                [70, 71, 72, *range(3, 4 + 2 * i), 73, 74, 70, 71, 72],
                voice="bo" if i % 2 else "ann",
                language=("english", "chinese", "auto")[i % 3],
                instruct=range(5, 5 + 3 * i),
                whole_text=bool(i % 2),
                sampling=SamplingSettings(repetition_penalty=1.05),
                max_new_tokens=7 + i,
            )
            for i in range(4)
        ]


class TestThePlugin(PluginContract):
    name = "qwen3-tts"
    config = "qwen3_tts"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def checkpoint(cls, small):
        few = "model.options.captured_frames=[1,4]"
        cls.sets = (*PluginContract.sets, f"model.path={small}", "model.load=random", few)
