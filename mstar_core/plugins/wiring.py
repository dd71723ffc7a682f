"""What is active: the loaded plugins, the registries, and the one way to ask a hook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from mstar_core.errors import PluginError, Refusal, SealedError, Words
from mstar_core.hookspecs import Hooks, hook_names, rule_of
from mstar_core.names import suggest
from mstar_core.plugins.ask import Asked, Voice, ask_all
from mstar_core.plugins.builtin import core_registries
from mstar_core.plugins.implementations import Implementation
from mstar_core.plugins.record import WRONG, PluginRecord
from mstar_core.plugins.registry import BackendRegistry, ModelRegistry, ResourceRegistry


@frozen(kw_only=True, eq=False)
class ActivePlugin:
    """A plugin that was loaded, with its hooks."""

    record: PluginRecord
    hooks: Mapping[str, Implementation]

    @property
    def name(self) -> str:
        """The name that people call it by."""
        return self.record.name


@define(kw_only=True, eq=False)
class Wiring:
    """The plugins of one engine. Hooks may be asked until it is sealed, and again at the stop."""

    models: ModelRegistry
    resources: ResourceRegistry
    backends: BackendRegistry
    records: tuple[PluginRecord, ...] = ()
    """Every installed plugin with its state, sorted by name."""
    active: dict[str, ActivePlugin] = field(factory=dict)
    _sealed: bool = field(default=False, init=False)

    @classmethod
    def of_core(cls, records: tuple[PluginRecord, ...] = ()) -> Wiring:
        """A wiring that holds only what the core itself brings."""
        models, resources, backends = core_registries()
        return cls(models=models, resources=resources, backends=backends, records=records)

    def ask(self, hook: str, *, faces: Sequence[Voice] = (), **arguments: Any) -> Asked:
        """Ask every active plugin, and the objects whose ``faces`` are given, about ``hook``.

        Raises SealedError while the engine serves. What an implementation raises is kept in its
        answer and never propagates; KeyboardInterrupt passes.
        """
        if self._sealed:
            raise SealedError(
                where=f"hook {hook}",
                got=Words("asked while the engine serves"),
                want="hooks asked only while loading, warming up, capturing and stopping",
                fix="ask once before the engine serves and keep the answer",
            )
        if hook not in hook_names():
            raise PluginError(
                where="Wiring.ask", got=hook, want="a hook", fix=suggest(hook, hook_names())
            )
        offered = Hooks.__dict__[hook].__code__.co_varnames[1 : _argument_count(hook)]
        if set(offered) != set(arguments):
            want = f"the arguments {', '.join(offered)}"
            got = Words(", ".join(sorted(arguments)) or "none")
            raise PluginError(where=f"hook {hook}", got=got, want=want, fix="pass exactly those")
        voices = [_voice(plugin, hook, arguments) for plugin in self._who_implement(hook)]
        return ask_all(hook, rule_of(hook), [*voices, *faces])

    def _who_implement(self, hook: str) -> list[ActivePlugin]:
        return [plugin for plugin in self.active.values() if hook in plugin.hooks]

    @property
    def left_out(self) -> tuple[Refusal, ...]:
        """Why installed plugins that nobody switched off are not active, sorted by name."""
        wrong = (record for record in self.records if record.state in WRONG)
        return tuple(record.refusal for record in wrong if record.refusal is not None)

    def seal(self) -> None:
        """The engine serves from here on: asking raises."""
        self._sealed = True

    def unseal_for_stop(self) -> None:
        """The engine is stopping: ``stopping`` may be asked."""
        self._sealed = False

    @property
    def sealed(self) -> bool:
        """Whether asking would raise."""
        return self._sealed

    def require(self, name: str) -> ActivePlugin:
        """The active plugin ``name``. Raises PluginError, worded as its refusal, if it is not."""
        if name in self.active:
            return self.active[name]
        for record in self.records:
            if record.name == name:
                raise not_usable(record)
        known = [record.name for record in self.records]
        raise PluginError(
            where="plugins", got=name, want="an installed plugin", fix=suggest(name, known)
        )


def not_usable(record: PluginRecord) -> PluginError:
    """The error for a plugin that is needed and is not ready: its own refusal, worded as one."""
    refusal = record.refusal
    return PluginError(
        where=f"plugin {record.name} ({record.release})",
        got=Words(f"{record.state}: {refusal.got}" if refusal else record.state),
        want=refusal.want if refusal else "a loaded plugin",
        fix=refusal.fix if refusal else f"select {record.name} when plugins are loaded",
    )


def _argument_count(hook: str) -> int:
    return int(Hooks.__dict__[hook].__code__.co_argcount)


def _voice(plugin: ActivePlugin, hook: str, arguments: Mapping[str, Any]) -> Voice:
    implementation = plugin.hooks[hook]
    return Voice(owner=plugin.name, call=lambda: implementation(arguments))
