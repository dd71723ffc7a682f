"""The plugin and its shipped checkpoint keep the contracts of the kit."""

from __future__ import annotations

from mstar_core.testing import ModelContract, PluginContract

PROMPTS = ("Hello", "What is a licence?", "Grüße! " * 9, "a", "One, two, three, four, five")


class TestTheTinyCheckpoint(ModelContract):
    config = "qwen35_tiny"
    sets = (*ModelContract.sets, "engine.max_context=256", "nodes.text.resources.kv.page_tokens=8")

    def requests(self, front):
        return [
            front.text_request(text, max_new_tokens=5 + 2 * i) for i, text in enumerate(PROMPTS)
        ]


class TestThePlugin(PluginContract):
    name = "qwen35"
    config = "qwen35_tiny"
