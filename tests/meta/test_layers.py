"""Imports go down the layers only, and torch stays out of the light modules."""

import ast
import subprocess
import sys

LAYERS = {
    "errors": -1,
    "names": 0,
    "fixed": 0,
    "launch": 0,
    "dtypes": 0,
    "clock": 0,
    "logs": 0,
    "config": 1,
    "ops": 1,
    "text": 1,
    "client": 1,
    "audio": 1,
    "resample": 1,
    "step": 2,
    "resources": 3,
    "resident": 4,
    "model": 5,
    "sched": 6,
    "hookspecs": 6,
    "plugins": 6,
    "engine": 7,
    "echo": 7,
    "serving": 8,
    "bench": 8,
    "cli": 9,
    "__main__": 10,
    "testing": 10,
}
"""Package or module directly under mstar_core → its layer."""
ANYWHERE = {"", "hookimpl", "__version__"}
"""Names of mstar_core itself."""
TORCH_FREE = (
    "errors",
    "names",
    "client",
    "config",
    "plugins",
    "hookspecs",
    "sched",
    "text",
    "cli",
    "launch",
)


def runtime_imports(tree):
    """(line, module, names) of every import that is not for type checkers alone."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, []
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "", [alias.name for alias in node.names]


def part_of(module, names):
    """The parts of mstar_core that an import reaches."""
    top, _, rest = module.partition(".")
    if top != "mstar_core":
        return set()
    return {rest.partition(".")[0]} if rest else set(names) - ANYWHERE


def test_every_part_of_the_core_has_a_layer(core):
    parts = {source.module.split(".")[1] for source in core if "." in source.module}
    assert parts - set(LAYERS) == set()


def test_imports_go_to_a_lower_layer_or_stay_inside_their_package(core):
    wrong = [
        f"{source.name}:{line} {part} imports {other}"
        for source in core
        if (part := source.module.partition(".")[2].partition(".")[0])
        for line, module, names in runtime_imports(source.tree)
        for other in part_of(module, names)
        if other != part and LAYERS[other] >= LAYERS[part]
    ]
    allowed = {"plugins imports hookspecs", "__main__ imports cli"}
    assert [text for text in wrong if text.partition(" ")[2] not in allowed] == []


def test_the_core_imports_no_plugin_and_plugins_import_no_other(root, shipped):
    wrong = []
    for source in shipped:
        own = "mstar_core"
        if source.name.startswith("plugins/"):
            own = source.name.split("/")[2]
        for line, module, _ in runtime_imports(source.tree):
            top = module.partition(".")[0]
            if top.startswith("mstar_") and top not in ("mstar_core", own):
                wrong.append(f"{source.name}:{line} imports {top}")
            if own != "mstar_core" and top == "mstar_core" and "._" in module:
                wrong.append(f"{source.name}:{line} imports the private {module}")
    assert wrong == []


def test_light_modules_import_no_torch_when_they_are_imported(core):
    """Everything under these parts is imported in one process in which torch cannot be."""
    light = [s.module for s in core if s.module.partition(".")[2].partition(".")[0] in TORCH_FREE]
    assert light
    code = (
        "import sys\nfor name in ('torch', 'transformers', 'triton'): sys.modules[name] = None\n"
        "from importlib import import_module\n"
        f"for name in {light!r}:\n    import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root_of(core), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def root_of(core):
    return core[0].path.parents[1]


def test_nothing_imports_the_testing_kit(shipped):
    wrong = [
        f"{source.name}:{line}"
        for source in shipped
        if not source.name.startswith("mstar_core/testing/")
        for line, module, names in runtime_imports(source.tree)
        if "testing" in part_of(module, names)
    ]
    assert wrong == []
