"""Which backend computes an operation: asked once while building, and reported."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, field, frozen

from mstar_core.errors import ConfigError, MstarError, Refusal, Words
from mstar_core.names import suggest
from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.plugins.registry import BackendOffer
from mstar_core.plugins.wiring import Wiring

log = logging.getLogger(__name__)
AUTO = "auto"


@frozen(kw_only=True)
class Choice:
    """One operation of one node: who computes it, and why not the others."""

    node: str
    operation: str
    name: str
    owner: str
    asked_for: str
    """``auto``, or the name that the configuration gives."""
    passed_over: tuple[Refusal, ...] = ()
    rank: str = ""
    """The priority of the one that was taken, and what that rests on."""
    behind: tuple[str, ...] = ()
    """Others that apply too, each with its rank."""


@define(eq=False, kw_only=True)
class BackendChooser:
    """Chooses and binds backends for every node of one engine."""

    wiring: Wiring
    device: str
    """``cpu`` or ``cuda``."""
    dtype: torch.dtype
    settings: Mapping[str, Mapping[str, str]]
    """Node → operation → ``auto`` or a name."""
    choices: dict[tuple[str, str, str], Choice] = field(factory=dict, init=False)
    bound: dict[str, dict[str, Backend]] = field(factory=dict, init=False)
    """Node → ``operation.name`` → the backend object, for its capture refusals."""

    def bind(self, node: str, operation: str, geometry: Mapping[str, Any]) -> Any:
        """The record of the chosen backend. Raises ConfigError where none applies, or one raises.

        ``auto`` takes the highest priority that applies; an explicit name that does not apply is
        an error with its refusal as the cause, never a silent fallback.
        """
        request = BindRequest(
            operation=operation, device=self.device, dtype=self.dtype, geometry=dict(geometry)
        )
        asked_for = self.settings.get(node, {}).get(operation, AUTO)
        offers = self.wiring.backends.candidates(operation)
        if not offers:
            known = self.wiring.backends.operations()
            raise ConfigError(
                where=f"node {node}",
                got=operation,
                want=f"one of: {', '.join(known)}",
                fix=suggest(operation, known),
            )
        refusals: list[Refusal] = []
        fit: list[tuple[BackendOffer, Backend]] = []
        for offer in offers:
            if asked_for not in (AUTO, offer.name):
                continue
            backend: Backend = offer.load()
            with _blamed(node, offer):
                refusal = backend.available(self.device) or backend.supports(request)
            if refusal is None:
                fit.append((offer, backend))
            else:
                refusals.append(refusal)
        if not fit:
            raise self._none_applies(node, operation, asked_for, refusals)
        offer, backend = self._prefer(request, fit) if asked_for == AUTO else fit[0]
        choice = Choice(
            node=node,
            operation=operation,
            name=offer.name,
            owner=offer.owner,
            asked_for=asked_for,
            passed_over=tuple(refusals),
            rank=offer.rank,
            behind=tuple(f"{o.name} ({o.rank})" for o, _ in fit if o is not offer),
        )
        self.choices[node, operation, offer.name] = choice
        self.bound.setdefault(node, {})[f"{operation}.{offer.name}"] = backend
        with _blamed(node, offer):
            return backend.bind(request)

    def check_settings(self) -> None:
        """Once all is bound: raise ConfigError for a setting of what its node never computes."""
        for node, backends in self.settings.items():
            used = sorted({operation for at, operation, _ in self.choices if at == node})
            for operation in backends:
                if operation not in used:
                    raise ConfigError(
                        where=f"nodes.{node}.backends.{operation}",
                        got=Words("an operation that the node does not use"),
                        want=f"one of: {', '.join(used)}" if used else "nothing",
                        fix=suggest(operation, used),
                    )

    def _prefer(
        self, request: BindRequest, fit: list[tuple[BackendOffer, Backend]]
    ) -> tuple[BackendOffer, Backend]:
        names = tuple(offer.name for offer, _ in fit)
        asked = self.wiring.ask("choose_backend", request=request, candidates=names)
        for failed in asked.findings:
            log.warning("%s", failed)
        if asked.value is None:
            return fit[0]
        found = next((pair for pair in fit if pair[0].name == asked.value), None)
        if found is None:
            raise ConfigError(
                where=f"choose_backend of {next(a.plugin for a in asked.answers if a.value)}",
                got=asked.value,
                want=f"None, or one of: {', '.join(names)}",
                fix=suggest(str(asked.value), names),
            )
        return found

    def _none_applies(
        self, node: str, operation: str, asked_for: str, refusals: list[Refusal]
    ) -> ConfigError:
        names = [offer.name for offer in self.wiring.backends.candidates(operation)]
        where = f"nodes.{node}.backends.{operation}"
        if asked_for != AUTO and asked_for not in names:
            return ConfigError(
                where=where,
                got=asked_for,
                want=f"auto, or one of: {', '.join(names)}",
                fix=suggest(asked_for, names) + "; or install the plugin that brings it",
            )
        error = ConfigError(
            where=where,
            got=asked_for,
            want="; ".join(f"{r.owner or r.where}: {r.want}" for r in refusals) or "a backend",
            fix=refusals[0].fix if refusals else "install a backend for this operation",
        )
        error.__cause__ = ConfigError(where=where, got=tuple(map(str, refusals)))
        return error


@contextmanager
def _blamed(node: str, offer: BackendOffer) -> Iterator[None]:
    """What a backend raises is told as the ConfigError of its plugin; what memory lacks, as it is.

    A library may be there and yet not load: built for another version of torch, or of a driver.
    """
    try:
        yield
    except (MstarError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        log.debug("backend %s.%s", offer.operation, offer.name, exc_info=error)
        raise ConfigError(
            where=f"nodes.{node}.backends.{offer.operation}",
            got=Words(f"{offer.name} of {offer.owner}: {type(error).__name__}: {error}"),
            want="a backend whose library can be loaded, and that refuses what it has not",
            fix=f"name another backend there, or mend {offer.owner.split()[0]}",
        ) from error
