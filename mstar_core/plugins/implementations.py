"""The hook implementations of one plugin module, checked against the specs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

from attrs import frozen

from mstar_core.errors import PluginError, Words
from mstar_core.hookspecs import PROJECT, Hooks, hook_names
from mstar_core.names import suggest


@frozen(kw_only=True)
class Implementation:
    """One plugin's answer to one hook."""

    function: Callable[..., Any]
    takes: frozenset[str]
    """The arguments it asked for, of those that the hook offers."""

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """Call it with its share of the hook's arguments."""
        return self.function(**{name: arguments[name] for name in self.takes})


def implementations(module: ModuleType) -> dict[str, Implementation]:
    """Hook → implementation, of every function in ``module`` that is marked ``@hookimpl``.

    Raises PluginError, with file and line, for a hook that does not exist (unless it is marked
    ``optionalhook``), an argument that its hook does not offer, a default, a coroutine, a wrapper.
    """
    found: dict[str, Implementation] = {}
    for attribute, function in sorted(vars(module).items()):
        options = getattr(function, f"{PROJECT}_impl", None)
        if not (isinstance(options, dict) and inspect.isroutine(function)):
            continue
        hook = options.get("specname") or attribute
        if hook in hook_names():
            found[hook] = _checked(hook, function, options)
        elif not options.get("optionalhook"):
            got = f"there is no hook {hook!r}"
            _refuse(function, got, "a hook of this core", suggest(hook, hook_names()))
    return found


def _checked(hook: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Implementation:
    offered = tuple(inspect.signature(getattr(Hooks, hook)).parameters)[1:]
    signature = f"{hook}({', '.join(offered)})"
    if options.get("wrapper") or options.get("hookwrapper"):
        _refuse(function, f"{hook} is a wrapper", signature, "remove the marker's option")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        _refuse(function, f"{hook} is a coroutine or generator", signature, "return the answer")
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            _refuse(function, f"{hook} takes *{name}", signature, "name each argument it uses")
        if name not in offered:
            got = f"{hook} has no argument {name!r}"
            _refuse(function, got, signature, suggest(name, offered))
        if parameter.default is not parameter.empty:
            _refuse(function, f"{name!r} has a default", signature, "remove the default")
    return Implementation(
        function=function, takes=frozenset(inspect.signature(function).parameters)
    )


def _refuse(function: Callable[..., Any], got: str, want: str, fix: str) -> NoReturn:
    code = function.__code__ if hasattr(function, "__code__") else None
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
    raise PluginError(where=where, got=Words(got), want=want, fix=fix)
