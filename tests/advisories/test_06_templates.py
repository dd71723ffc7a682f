"""Family 6: chat templates that come with a request.

CVE-2026-115911 / GHSA-542m-9234-8gvf, CVE-2026-115918.
"""

import ast

import pytest

LOOP = "{% for i in range(10**12) %}{% endfor %}"
MESSAGES = [{"role": "user", "content": "hello"}]
CHAT = {"messages": MESSAGES, "max_tokens": 64}


@pytest.mark.parametrize("value", [LOOP, "{{ x }}", "", "chatml", {"a": LOOP}])
def test_a_template_is_refused(rig, value):
    server = rig()
    body = {**CHAT, "chat_template": value}
    assert server.code("/v1/chat/completions", body) == (400, "unsupported_field")
    assert server.link.submitted == 0
    server.check_good()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize("name", ["chat_template", "tools", "messages", "documents", "x"])
def test_the_templates_own_names_are_not_the_clients_to_set(rig, path, name):
    server = rig()
    body = {"messages": MESSAGES, "chat_template_kwargs": {name: LOOP}}
    assert server.code(path, body)[0] == 400
    assert server.link.submitted == 0


def test_a_template_in_a_message_is_text(rig):
    body = {"messages": [{"role": "user", "content": "{{ 7 * 7 }}" + LOOP}], "max_tokens": 64}
    told = rig().ask("/v1/chat/completions", body)
    assert told.json()["choices"][0]["message"]["content"] == "{{ 7 * 7 }}" + LOOP


def test_no_shipped_code_makes_a_template_environment_of_its_own(shipped):
    found = {
        f"{path}:{node.lineno}"
        for path, tree in shipped.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and "jinja2" in ast.unparse(node)
    }
    assert found == set()
