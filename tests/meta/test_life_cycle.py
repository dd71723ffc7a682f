"""The verbs of a resource are called in one place."""

import ast

VERBS = ("room", "take", "plan", "commit")
CALLERS = {
    "mstar_core/engine/lifecycle.py": VERBS,
    # A node walks its resources in dependency order on behalf of lifecycle.py.
    "mstar_core/engine/node.py": ("plan", "commit"),
    # A capture fixes its shapes with a plan of padding rows alone: nothing is taken.
    "mstar_core/engine/capture.py": ("plan",),
    # The staging block is sized by a plan of padding rows alone.
    "mstar_core/engine/sizing.py": ("plan",),
}
"""Module → the verbs it may call on a resource or a node."""
OWN = ("mstar_core/resources/", "mstar_core/testing/")


def asks_a_resource(call):
    """Whether a call is ``<something about a node or a resource>.verb(…)``."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr in VERBS):
        return False
    receiver = ast.unparse(call.func.value)
    return "resource" in receiver or receiver.split("[")[0].split(".")[-1] in ("node", "nodes")


def test_only_the_life_cycle_calls_the_verbs_of_a_resource(shipped):
    wrong = []
    for source in shipped:
        if source.name.startswith(OWN):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and asks_a_resource(node):
                verb = node.func.attr
                if verb not in CALLERS.get(source.name, ()):
                    wrong.append(f"{source.name}:{node.lineno} {ast.unparse(node.func)}")
    assert wrong == []
