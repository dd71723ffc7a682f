"""The page ``docs/hooks.md``, written from the hook specs so that it cannot differ from them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from mstar_core.hookspecs import Hooks, hook_names, rule_of

_HEAD = """# Hooks

This page is written by `mstar_core.plugins.reference` from `mstar_core/hookspecs.py`; a test
compares the two.

A plugin's module implements the hooks that it cares for as plain functions marked with
`from mstar_core import hookimpl`. An implementation may take fewer arguments than its hook offers.
`None` means "no opinion", and the order of plugins never changes an outcome. Hooks are asked while
plugins load, at warmup, before a capture and while stopping; the wiring is sealed while the engine
serves, and asking then raises `SealedError`.

## Rules

How the answers of several plugins become one:
"""
_PART = re.compile(r"^(Asked|Do|Rule|Example): ", re.MULTILINE)
_RULE = re.compile(r"^``(\w+)``\s+(.+)$", re.MULTILINE)


def hooks_reference() -> str:
    """The whole page as Markdown."""
    rules = _RULE.findall(str(inspect.getmodule(Hooks).__doc__))
    lines = [_HEAD, "| rule | meaning |", "|---|---|"]
    lines += [f"| `{rule}` | {meaning} |" for rule, meaning in rules]
    lines += ["", "## All hooks", ""]
    for name in hook_names():
        lines += [*_hook(name), ""]
    return "\n".join(lines)


def _hook(name: str) -> list[str]:
    spec = getattr(Hooks, name)
    summary, *parts = _PART.split(inspect.cleandoc(spec.__doc__))
    lines = [f"### `{name}{_arguments(spec)}`", "", _code(summary), "", "| | |", "|---|---|"]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        said = text.replace(rule_of(name), f"`{rule_of(name)}`", 1) if title == "Rule" else text
        lines.append(f"| {title} | {_code(said)} |")
    return lines


def _arguments(spec: Any) -> str:
    names = [name for name in inspect.signature(spec).parameters if name != "self"]
    return f"({', '.join(names)})"


def _code(text: str) -> str:
    """A docstring's text on one line, in Markdown's spelling of code."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
