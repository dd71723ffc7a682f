"""Every hook, typed: the page to read before writing a plugin.

A plugin's module (``mstar_x.plugin``) implements the hooks it cares for as plain functions::

    from mstar_core import hookimpl

    @hookimpl
    def provide_models(registry):
        registry.add("x", "mstar_x.model:XModel")

An implementation may take fewer arguments than its hook offers, has no defaults, is not a
coroutine and not a wrapper. Hooks are asked while plugins load, at warmup, before a capture and
while stopping, never during a step: the wiring is sealed while the engine serves. ``None`` means
"no opinion" everywhere, and the order of plugins never changes an outcome.

Each docstring says when the hook is **asked**, what to **do**, by which **rule** the core combines
the answers of several plugins, and shows an **example**. The rules:

``one_owner``    a name belongs to one plugin; a second claim is refused, naming both
``each``         every answer is kept beside its owner
``observe``      nothing is answered; an error is a finding and stops nothing
``union``        all answers together
``all_agree``    answers must be equal; otherwise it is refused, naming both
``any_refuses``  one refusal is enough; all of them are kept
``first_answer`` the first plugin by name that has an opinion; the others are recorded
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    from mstar_core.errors import Refusal
    from mstar_core.plugins.registry import BackendRegistry, ModelRegistry, ResourceRegistry
    from mstar_core.step.bucket import Bucket
    from mstar_core.step.split import CombinedSplit as CombinedSplit

PROJECT = "mstar_core"
Rule = Literal["one_owner", "each", "observe", "union", "all_agree", "any_refuses", "first_answer"]
RULES: tuple[str, ...] = get_args(Rule)

hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)
"""Marks a function of a plugin's module as the implementation of the hook of that name."""

Spec = TypeVar("Spec", bound=Callable[..., Any])


def asked_by(rule: Rule) -> Callable[[Spec], Spec]:
    """Mark a method as a hook whose answers are combined by ``rule``."""

    def mark(method: Spec) -> Spec:
        method.__dict__["mstar_rule"] = rule
        return hookspec(method)

    return mark


class Hooks(Protocol):
    """All hooks of the core."""

    @asked_by("one_owner")
    def provide_models(self, registry: ModelRegistry) -> None:
        """Name the models this plugin brings.

        Asked: once, right after the plugin's module was imported.
        Do: ``registry.add(name, "package.module:Class")``; the class is imported when it is built.
        Rule: one_owner. The names must be exactly the manifest's ``offers.models``.
        Example: ``registry.add("tiny", "mstar_tiny.model:TinyModel")``
        """

    @asked_by("one_owner")
    def provide_resources(self, registry: ResourceRegistry) -> None:
        """Name the kinds of per-request state this plugin brings.

        Asked: once, right after the plugin's module was imported.
        Do: ``registry.add(kind, "package.module:Class")`` for each kind of resource.
        Rule: one_owner. The kinds must be exactly the manifest's ``offers.resources``.
        Example: ``registry.add("grammar", "mstar_grammar.resource:GrammarResource")``
        """

    @asked_by("one_owner")
    def provide_backends(self, registry: BackendRegistry) -> None:
        """Name the implementations of operations this plugin brings.

        Asked: once, right after the plugin's module was imported.
        Do: ``registry.add(operation, name, "package.module:BACKEND", priority=…, hardware=…)``.
        Rule: one_owner. The pairs must be exactly the manifest's ``offers.backends``.
        Example: ``registry.add("sampling", "fast", "mstar_fast.sampling:BACKEND", priority=50)``
        """

    @asked_by("observe")
    def configure(self, config: Any) -> None:
        """Receive the deployment's configuration.

        Asked: once, right after the plugin has provided what it offers.
        Do: keep what the plugin needs of ``config`` (frozen; None where there is none).
        Rule: observe. An error makes the plugin a broken one: nothing it provided is kept.
        Example: ``def configure(config): limits.update(config)``
        """

    @asked_by("each")
    def config_schema(self) -> type | None:
        """Declare the options this plugin accepts, as an attrs class.

        Asked: while loading, before the plugin's section of the configuration is read.
        Do: return a frozen attrs class with validators; its fields become the known keys.
        Rule: each. A plugin answers for its own options and nobody else's.
        Example: ``def config_schema(): return TinyOptions``
        """

    @asked_by("all_agree")
    def combined_splits(self, node: str) -> Iterable[CombinedSplit] | None:
        """Say which combined walks of a node run as two kernels.

        Asked: at warmup, once per node, before weights are loaded.
        Do: return ``CombinedSplit`` values: the combined walk, its decode and prefill walks, rows.
        Rule: all_agree about each combined walk; a split that misses a walk of several tokens a
            row is refused.
        Example: ``return (mstar_core.step.split.CombinedSplit(walk="mixed", …),)``
        """

    @asked_by("union")
    def resident_walks(self, node: str) -> Iterable[str] | None:
        """Name walks of a node whose captured step may read its state from device tables.

        Asked: at warmup, before the planner is built and before anything is captured.
        Do: return names of walks of ``node``.
        Rule: union, then any resource may veto a walk; a vetoed walk is planned on the host.
        Example: ``return ("decode",) if node == "text" else None``
        """

    @asked_by("any_refuses")
    def capture_refusal(self, node: str, bucket: Bucket) -> Refusal | None:
        """Object to capturing one bucket of a node.

        Asked: before each capture, whole forwards and inner regions alike.
        Do: judge by ``node``, ``bucket`` and configuration only, so that all ranks agree.
        Rule: any_refuses. A refused bucket runs eagerly and is listed with every reason.
        Example: ``return Refusal(code="too-wide", where=str(bucket), …) if rows > 64 else None``
        """

    @asked_by("first_answer")
    def choose_backend(self, request: Any, candidates: Sequence[Any]) -> str | None:
        """Prefer one backend among those that apply to an operation.

        Asked: once per operation and node when a model is built, where the setting is ``auto``.
        Do: return the name of one of ``candidates``, which come highest priority first.
        Rule: first_answer by plugin name; without one, priority decides, then name.
        Example: ``return "torch" if request.deterministic else None``
        """

    @asked_by("union")
    def review_plan(self, plan: Any) -> Iterable[Refusal] | None:
        """Review what was wired before weights are loaded.

        Asked: once, when nodes, resources and backends are chosen.
        Do: return a Refusal for each thing that must not be served like this.
        Rule: union. Any refusal stops the start; all are printed.
        Example: ``return [Refusal(code="no-audit", where="plan", …)]``
        """

    @asked_by("observe")
    def warmup_event(self, event: Any) -> None:
        """Watch the warmup: phase, node, bucket, seconds, bytes, refusals.

        Asked: as each phase and each bucket of the warmup ends.
        Do: record it, print it, count it.
        Rule: observe. An error is a finding of the warmup report and stops nothing.
        Example: ``def warmup_event(event): log.info("%s", event)``
        """

    @asked_by("observe")
    def stopping(self, reason: str) -> None:
        """Let go of what the plugin holds outside the engine.

        Asked: once, when the engine is closed.
        Do: flush and close; the engine's own memory is not the plugin's to free.
        Rule: observe. An error is logged and stops nothing.
        Example: ``def stopping(reason): log.info("closed: %s", reason)``
        """

    @asked_by("union")
    def doctor_checks(self, context: Any) -> Iterable[Refusal] | None:
        """Examine this machine for what the plugin needs.

        Asked: by ``mstar-core doctor``.
        Do: return a Refusal for each thing missing; ``context.devices`` names what was found.
        Rule: union. The findings are printed under the plugin's name.
        Example: ``return [Refusal(code="old-driver", where="driver", …)]``
        """

    @asked_by("each")
    def contract_cases(self, kit: Any) -> Iterable[Any] | None:
        """Give the conformance kit tiny cases with random weights on the CPU.

        Asked: only by the kit (``mstar_core.testing``).
        Do: return cases of what the plugin offers, built with ``kit``.
        Rule: each. A plugin's cases test that plugin.
        Example: ``return [kit.model_case("tiny", options={"layers": 2})]``
        """


def hook_names() -> tuple[str, ...]:
    """All hooks, in the order of the class."""
    return tuple(name for name, member in vars(Hooks).items() if hasattr(member, "mstar_rule"))


def rule_of(hook: str) -> str:
    """The rule by which the answers to ``hook`` are combined."""
    return str(getattr(Hooks, hook).mstar_rule)
