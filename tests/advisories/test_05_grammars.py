"""Family 5: a pattern of the client's hangs the grammar compiler.

PYSEC-2026-2304 / GHSA-rwxx-mrjm-wc2m, PYSEC-2026-3933. There is no grammar compiler here: whatever
asks for one is a 400 that says so, before anything is compiled.
"""

import ast
import time

import pytest

EVIL = "(a+)+$" * 20
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
TEXT = {"prompt": "x", "max_tokens": 1}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"pattern": EVIL}}}
COMPILERS = {"llguidance", "xgrammar", "outlines", "outlines_core", "lmformatenforcer"}
FIELDS = {
    "response_format": [{"type": "json_object"}, SCHEMA],
    "guided_regex": [EVIL],
    "guided_json": [{"pattern": EVIL}],
    "guided_grammar": ["start: /(a+)+/"],
    "guided_choice": [["a", "b"]],
    "structured_outputs": [{"regex": EVIL}],
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)]
)
def test_a_request_for_a_grammar_is_refused_and_never_ignored(rig, path, body, field):
    server = rig(server={"strict": True})
    for value in FIELDS[field]:
        began = time.perf_counter()
        status, code = server.code(path, {**body, field: value})
        assert status == 400
        assert code in ("unsupported_field", "unknown_field")
        assert time.perf_counter() - began < 1
    assert server.link.submitted == 0
    server.check_good()


def test_a_schema_of_a_tool_is_shown_and_not_compiled(rig):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"pattern": EVIL}}}
    assert rig().ask("/v1/chat/completions", {**CHAT, "tools": [tool]}).status in (200, 400)


def test_no_grammar_compiler_is_imported(shipped):
    found = {
        f"{path}: {name}"
        for path, tree in shipped.items()
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if name.partition(".")[0] in COMPILERS
    }
    assert found == set()
