"""Plain methods of models and resources, turned into answers to hooks of the same name.

Authors override methods with safe defaults and never mark them; here each object becomes a voice
whose owner is its key, beside the plugins that implement the hook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mstar_core.plugins.ask import Voice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mstar_core.errors import Refusal
    from mstar_core.step.bucket import Bucket
    from mstar_core.step.split import CombinedSplit


class SaysResidentWalks(Protocol):
    """A node's submodule."""

    def resident_walks(self) -> Iterable[str]: ...


class SaysResidentRefusal(Protocol):
    """A resource, asked whether a walk may run off device tables."""

    def resident_refusal(self, walk: str) -> Refusal | None: ...


class SaysCombinedSplits(Protocol):
    """A resource, asked which combined walks it runs as two kernels."""

    def combined_splits(self) -> Iterable[CombinedSplit]: ...


class SaysCaptureRefusal(Protocol):
    """A resource or a backend, asked whether a bucket can be captured."""

    def capture_refusal(self, bucket: Bucket) -> Refusal | None: ...


def resident_walk_faces(node: str, submodule: SaysResidentWalks) -> list[Voice]:
    """The submodule's own answer to ``resident_walks``."""
    return [Voice(owner=node, call=submodule.resident_walks)]


def resident_refusal_faces(resources: Mapping[str, SaysResidentRefusal], walk: str) -> list[Voice]:
    """Each resource's veto of ``walk``, or None."""
    return [_voice(key, resource.resident_refusal, walk) for key, resource in resources.items()]


def combined_split_faces(resources: Mapping[str, SaysCombinedSplits]) -> list[Voice]:
    """Each resource's own splits."""
    return [Voice(owner=key, call=each.combined_splits) for key, each in resources.items()]


def capture_refusal_faces(
    bucket: Bucket, *askable: Mapping[str, SaysCaptureRefusal]
) -> list[Voice]:
    """Each resource's and each backend's objection to ``bucket``, or None."""
    return [
        _voice(key, each.capture_refusal, bucket)
        for group in askable
        for key, each in group.items()
    ]


def _voice(owner: str, method: Callable[[Any], Any], argument: Any) -> Voice:
    return Voice(owner=owner, call=lambda: method(argument))
