"""The mutations that docs/testing.md lists name tests that exist."""

import ast
import re

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_is_said_to_see_a_mutation_exists(root):
    named = NAMED.findall((root / "docs/testing.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    missing = []
    for file, test in named:
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        if test not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{test}")
    assert missing == []
