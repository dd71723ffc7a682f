"""Loading: the selected plugins, one by one, sorted by name, each behind a guard.

A plugin is loaded whole or not at all. One that raises, ends the process, misspells a hook, claims
a name that is taken or offers other names than its manifest says becomes a ``broken`` record with
one Refusal, and the next one is loaded.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from attrs import evolve

from mstar_core.errors import MstarError, PluginError, Words
from mstar_core.names import suggest
from mstar_core.plugins.discover import discover
from mstar_core.plugins.implementations import implementations
from mstar_core.plugins.index import broken, broken_by
from mstar_core.plugins.manifest import Offers
from mstar_core.plugins.record import PluginRecord
from mstar_core.plugins.wiring import ActivePlugin, Wiring, not_usable

log = logging.getLogger(__name__)


def load_plugins(
    selected: Iterable[str],
    config: Any = None,
    *,
    records: Sequence[PluginRecord] | None = None,
) -> Wiring:
    """Load the plugins named in ``selected`` and give the wiring of what could be loaded.

    ``records`` is what :func:`discover` found (asked anew where absent); ``config`` is handed to
    each plugin's ``configure``. A plugin that is not ready or fails is left out and says why in
    ``wiring.records``; ``wiring.require(name)`` raises for one that is needed. Raises PluginError
    for a name that nobody has.
    """
    found = tuple(discover() if records is None else records)
    wanted = set(selected)
    for name in sorted(wanted - {record.name for record in found}):
        known = [record.name for record in found]
        fix = suggest(name, known)
        raise PluginError(where="plugins", got=name, want="an installed plugin", fix=fix)
    wiring = Wiring.of_core()
    wiring.records = tuple(
        _load_into(wiring, record, config)
        if record.name in wanted and record.state == "ready"
        else record
        for record in sorted(found, key=lambda record: (record.name, record.distribution))
    )
    return wiring


def select_for(model: str, records: Sequence[PluginRecord]) -> tuple[str, ...]:
    """The plugins to load to serve ``model``: its owner, and all that bring more than models.

    Raises PluginError, naming the nearest model or the plugin that brings it and is not ready.
    """
    ready = [record for record in records if record.state == "ready"]
    owners = [record for record in records if model in record.offers.models]
    if not any(record in ready for record in owners):
        if owners:
            raise not_usable(owners[0])
        known = sorted({name for record in ready for name in record.offers.models})
        raise PluginError(
            where="model.name",
            got=model,
            want=f"one of: {', '.join(known)}" if known else "a model that a plugin brings",
            fix=_new_name(model, records) or suggest(model, known),
        )
    return tuple(record.name for record in ready if record in owners or not _only_models(record))


def load_one(record: PluginRecord, wiring: Wiring, config: Any) -> ActivePlugin:
    """Load one plugin and adopt what it brings. Raises whatever is wrong with it."""
    with quiet_stdout():
        module = import_module(record.module)
        active = ActivePlugin(
            record=evolve(record, hooks=tuple(sorted(hooks := implementations(module)))),
            hooks=hooks,
        )
        models = wiring.models.draft(record.release)
        resources = wiring.resources.draft(record.release)
        backends = wiring.backends.draft(record.release)
        for hook, registry in (
            ("provide_models", models),
            ("provide_resources", resources),
            ("provide_backends", backends),
        ):
            if hook in hooks:
                hooks[hook]({"registry": registry})
        brought = Offers(
            models=tuple(models.entries),
            resources=tuple(resources.entries),
            backends=tuple(f"{operation}.{name}" for operation, name in backends.entries),
        )
        _manifest_is_true(record, brought, module)
        if "configure" in hooks:
            hooks["configure"]({"config": config})
    wiring.models.adopt(models)
    wiring.resources.adopt(resources)
    wiring.backends.adopt(backends)
    wiring.active[record.name] = active
    return active


def guarded(record: PluginRecord, load: Callable[[PluginRecord], ActivePlugin]) -> PluginRecord:
    """The record after ``load``: with its hooks, or broken. Only KeyboardInterrupt passes."""
    try:
        return load(record).record
    except KeyboardInterrupt:
        raise
    except MstarError as error:
        return broken_by(record, "cannot-load", error)
    except BaseException as error:
        log.debug("plugin %s was not loaded", record.name, exc_info=error)
        return broken(
            record,
            "cannot-load",
            got=f"{type(error).__name__}: {_one_line(error)}",
            want=f"a module {record.module} that can be imported and asked",
            fix=f"pip install -U {record.distribution}, or pip uninstall {record.distribution}",
        )


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """What is printed within goes to stderr, from Python or from a library beneath it."""
    if sys.stdout is not None:
        sys.stdout.flush()
    kept = None
    with suppress(OSError):
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def _load_into(wiring: Wiring, record: PluginRecord, config: Any) -> PluginRecord:
    return guarded(record, lambda ready: load_one(ready, wiring, config))


def _manifest_is_true(record: PluginRecord, brought: Offers, module: ModuleType) -> None:
    said, done = record.offers.names(), brought.names()
    if said == done:
        return
    parts = [f"its manifest offers {name}" for name in sorted(said - done)]
    parts += [f"it registered {name}" for name in sorted(done - said)]
    raise PluginError(
        where=str(module.__file__),
        got=Words(", ".join(parts) + ", and the other side does not"),
        want="a manifest that says exactly what the plugin registers",
        fix="correct [offers] in mstar_plugin.toml or the plugin's provide hooks",
    )


def _only_models(record: PluginRecord) -> bool:
    offers = record.offers
    return bool(offers.models) and not (offers.resources or offers.backends)


def _new_name(model: str, records: Sequence[PluginRecord]) -> str:
    for record in records:
        if record.manifest and model in record.manifest.renamed:
            return f"write {record.manifest.renamed[model]!r}: the model was renamed"
    return ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
