"""Words that say nothing, names that do not belong in the core, errors of the wrong kind."""

import ast
import re

EMPTY_WORDS = re.compile(r"(manager|handler|helper|util)s?", re.IGNORECASE)
FOREIGN = re.compile(
    r"qwen|whisper|llama|mistral|gemma|deepseek|flashinfer|fmha|aiter(?!__)|cutlass|cudnn|flash_attn",
    re.IGNORECASE,
)
"""Models and kernel libraries that the core must not know."""


def test_no_class_or_module_has_a_name_that_says_nothing(shipped):
    wrong = [source.name for source in shipped if EMPTY_WORDS.fullmatch(source.path.stem)]
    wrong += [
        f"{source.name}:{node.lineno} {node.name}"
        for source in shipped
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and EMPTY_WORDS.search(node.name)
    ]
    assert wrong == []


def test_the_core_names_no_model_and_no_kernel_library(core):
    wrong = []
    for source in core:
        if source.name.startswith("mstar_core/testing/"):
            continue
        for number, line in enumerate(source.path.read_text().splitlines(), 1):
            if FOREIGN.search(line):
                wrong.append(f"{source.name}:{number} {line.strip()}")
    assert wrong == []


def test_the_core_raises_its_own_errors(core):
    wrong = []
    for source in core:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Raise) or node.exc is None:
                continue
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id in ("ValueError", "Exception"):
                wrong.append(f"{source.name}:{node.lineno} raise {raised.id}")
    assert wrong == []


def test_the_repository_reads_no_environment_variable(shipped):
    wrong = [
        f"{source.name}:{node.lineno}"
        for source in shipped
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    ]
    assert wrong == []
