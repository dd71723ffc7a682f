"""What can go wrong, as values: where / got / want / fix.

The tree and each branch's fate::

    MstarError
    ├── ConfigError        a person wrote a setting that cannot be used   start-up ends, exit 1
    │   └── CheckpointError  a checkpoint folder or tensor cannot be used start-up ends, exit 1
    ├── PluginError        a plugin that is needed cannot be loaded       start-up ends, exit 1
    ├── UsageError         the command line is wrong                      exit 2
    ├── RequestError       one request cannot be served                   that request fails
    ├── ClientError        a call to a server gave no result (client)     that call fails
    ├── DeviceFault        a launch raised, or an event missed its time   the engine process ends
    └── SealedError        something asked or grew after it was sealed    a bug: full traceback

A :class:`Refusal` is not an error. It is an *answer*: asked, and declined, with a reason. A finite
thing that has run out is a ``Shortage`` (``mstar_core.step``), which the scheduler answers.
Anything else that is raised is a bug and keeps its traceback in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs
from attrs import define, frozen

SHOWN = 300
"""Characters of a value that an error shows; a description is shown as a whole."""


@define(kw_only=True, eq=False)
class MstarError(Exception):
    """An error a reader can act on: four facts, always in the same order."""

    where: str
    """Where it is wrong: ``file:line`` and a dotted path, a field name, or a plugin."""
    got: object = None
    """What was given, as written; never a coerced value."""
    want: str = ""
    """What is accepted, with its unit."""
    fix: str = ""
    """One imperative sentence that the reader can act on."""

    def __str__(self) -> str:
        lines = [self.where, f"  got   {self._shown()}"]
        if self.want:
            lines.append(f"  want  {self.want}")
        if self.fix:
            lines.append(f"  fix   {self.fix}")
        return "\n".join(lines)

    def under(self, section: str) -> Self:
        """The same error as seen from the enclosing section (``section.where``)."""
        return attrs.evolve(self, where=f"{section}.{self.where}")

    def facts(self) -> dict[str, str]:
        """The four facts as plain strings, for a message that crosses a process."""
        return {"where": self.where, "got": self._shown(), "want": self.want, "fix": self.fix}

    def _shown(self) -> str:
        if isinstance(self.got, Words):
            return str(self.got)
        text = repr(self.got)
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"

    @classmethod
    def of_facts(cls, facts: Mapping[str, str]) -> Self:
        """The error whose :meth:`facts` these are."""
        words = Words(facts["got"])
        return cls(where=facts["where"], got=words, want=facts["want"], fix=facts["fix"])


class Words(str):
    """A ``got`` that is a description rather than a value, so it is printed without quotes."""

    __slots__ = ()


@define(kw_only=True, eq=False)
class ConfigError(MstarError):
    """One setting that cannot be used. Ends start-up with exit code 1."""


@define(kw_only=True, eq=False)
class CheckpointError(ConfigError):
    """A checkpoint that cannot be used; names the file and, where it applies, the tensors."""


@define(kw_only=True, eq=False)
class PluginError(MstarError):
    """A plugin that is needed cannot be loaded. Ends start-up with exit code 1."""


@define(kw_only=True, eq=False)
class UsageError(MstarError):
    """The command line is wrong. Exit code 2."""


@define(kw_only=True, eq=False)
class RequestError(MstarError):
    """One request cannot be served; the engine goes on with the next one."""


@define(kw_only=True, eq=False)
class BusyError(RequestError):
    """One request cannot be served now; there is nothing wrong with it, and later it may be."""


@define(kw_only=True, eq=False)
class DeviceFault(MstarError):
    """A launch or replay raised, or an event passed its deadline. Ends the engine process."""


@define(kw_only=True, eq=False)
class SealedError(MstarError):
    """A hook asked, or a fixed buffer grew, after it had been sealed. A bug in the caller."""


@frozen(kw_only=True)
class Refusal:
    """Asked, and declined: why, and what to do. Listed by every command that reports."""

    code: str
    """A short stable word for machines: ``api-too-new``, ``no-hardware``, ``prefill-too-long``."""
    where: str
    """What was asked about: a plugin, a backend, ``node text, bucket decode x 64``."""
    got: str
    """What was found."""
    want: str
    """What would have been accepted."""
    fix: str
    """One imperative sentence that the reader can act on."""
    owner: str = ""
    """Who declined: a distribution, a backend, a resource key."""

    def __str__(self) -> str:
        owner = f" [{self.owner}]" if self.owner else ""
        return f"{self.where}: {self.got}; want {self.want}; fix: {self.fix}{owner}"

    def as_dict(self) -> dict[str, str]:
        """Plain strings, for ``--json``."""
        return attrs.asdict(self)
