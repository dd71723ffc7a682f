"""``model.options`` of a Whisper deployment."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import optional

from mstar_core.config.checks import words
from mstar_core.config.schema import about


@frozen(kw_only=True)
class WhisperOptions:
    """What a request that does not say is taken to mean."""

    default_language: str | None = field(
        default=None,
        validator=optional(words),
        metadata=about("code of the language spoken, for requests that name none, such as de"),
    )
