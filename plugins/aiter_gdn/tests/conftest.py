"""Fakes are a module beside the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
SLOW = ("any_length", "cut_anywhere", "width_of_the_lead", "copy_of_a_slot")
"""Checks that each kernel path need not go through at every run; under ``long`` it does."""


def pytest_collection_modifyitems(items):
    for item in items:
        if "TestTokenByToken" in item.nodeid and any(name in item.name for name in SLOW):
            item.add_marker(pytest.mark.long)
