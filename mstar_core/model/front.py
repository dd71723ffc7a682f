"""The weight-free front of a model: requests in, text or sound out. Free of torch and engine."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

from mstar_core.config.sampling import SamplingSettings, plain
from mstar_core.model import request_fields as checked
from mstar_core.model.answer import Answer, PlainAnswer
from mstar_core.model.segment import Segment
from mstar_core.text.parts import parts

if TYPE_CHECKING:
    from mstar_core.model.transcription import Sound, Transcription

_SILENCE = np.empty(0, dtype=np.float32)
_flag = checked.exactly(bool, "true or false", "write True or False")
_tokens = checked.exactly(int, "an integer of at least 1 (tokens)", "write for example 16")


@frozen(kw_only=True, eq=False)
class Request:
    """One request in numbers: what the engine needs, and nothing of text or files.

    It is built by a :class:`Front` (or by hand, for a model whose inputs are already numbers).
    Raises RequestError for a field of another type, by its name; lengths, ids and limits are what
    an engine asks at its door.
    """

    arrays: Mapping[str, np.ndarray] = field(validator=checked.named("arrays"))
    """Per input name of the ``prompt`` walks: ``[items, *shape]`` (``ids`` int64 ``[prompt]``)."""
    max_new_tokens: int = field(default=16, converter=plain, validator=_tokens)
    stop_ids: frozenset[int] = field(
        default=frozenset(), converter=checked.plain_set, validator=checked.ids
    )
    stop: tuple[str, ...] = field(
        default=(), converter=checked.plain_tuple, validator=checked.texts
    )
    """Stop strings. **An engine does not see them**, since it makes no text: ``Engine.run``,
    ``stream`` and ``astream`` go on past them. ``stream_text`` honours them, as does whoever else
    turns ids into text with ``mstar_core.text.TextStream``."""
    ignore_stop_ids: bool = field(default=False, validator=_flag)
    gated: bool = field(default=False, validator=_flag)
    """The next step of this request waits until its last one has been read (a grammar)."""
    priority: int = field(default=0, converter=plain)
    """Higher is served earlier, and yields memory later; waiting counts for more with time."""
    deadline_s: float | None = field(default=None, converter=plain)
    """Seconds from its arrival after which it ends with what it has, by reason ``error``."""
    sampling: SamplingSettings = field(factory=SamplingSettings, validator=checked.sampling)
    settings: Mapping[str, Any] = field(factory=dict, validator=checked.named("settings"))
    """Further settings by name, as the resource that reads them documents them."""
    id: str = field(factory=lambda: uuid.uuid4().hex, validator=checked.name)


class Front(ABC):
    """Turns what a person gives into a :class:`Request`, and token ids into text."""

    stop_ids: frozenset[int] = frozenset()
    """Ids that end a generation: the tokenizer's and the configuration's together."""
    speech_chars: int | None = None
    """Characters that one request speaks at most; None: any number."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens left out."""

    def text_request(self, prompt: str, **options: Any) -> Request:
        """A request that continues ``prompt``. Raises RequestError if the model takes no text."""
        raise _unsupported(self, "text prompts")

    def chat_request(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Request:
        """A request that answers ``messages``. Raises RequestError if the model does not chat.

        A front whose model can think takes ``think`` (true or false), and one whose model can call
        tools takes ``tools``; :meth:`chat_options` says so.
        """
        raise _unsupported(self, "chat")

    def audio_request(self, samples: np.ndarray, rate: int, **options: Any) -> Request:
        """A request over ``samples`` float32 ``[T]`` or ``[T, channels]`` at ``rate`` Hz.

        ``options`` of speech recognition: ``language`` (a code), ``task`` (``translate``),
        ``prompt`` (what was said before), ``timestamps``. Raises RequestError.
        """
        raise _unsupported(self, "audio")

    def transcription(self, sound: Sound, **options: Any) -> Transcription:
        """A plan that hears ``sound`` of any length; nothing is read before it is asked.

        ``options`` beside those of speech recognition: ``batched`` (windows are heard together,
        and none knows what was said before it), ``word_timestamps``, ``hotwords``, ``state``
        (of a plan that goes on), and what the model's own rules can be set to. Raises RequestError.
        A front without a plan of its own hears all of the sound in one audio request.
        """
        from mstar_core.model.at_once import AtOnce

        return AtOnce(self, sound, options)

    def segments(self, ids: Sequence[int], seconds: float) -> list[Segment]:
        """The answer to an audio request with timestamps, by time; the sound lasts ``seconds``."""
        text = self.decode(ids)
        return [Segment(start=0.0, end=seconds, text=text, first=0, ids=tuple(ids))] if text else []

    def speech_request(
        self, text: str, *, voice: str | None = None, speed: float = 1.0, **options: Any
    ) -> Request:
        """A request that speaks ``text``; ``traits`` names voices and the ``sample_rate``.

        ``voice``: None is the model's own. ``speed`` is a factor. Further ``options`` are those
        that :meth:`speech_options` names, and fields of :class:`Request`. Raises RequestError.
        """
        raise _unsupported(self, "text to be spoken")

    def speech_requests(self, text: str, **options: Any) -> list[Request]:
        """Requests whose sounds, one behind the other, speak all of ``text``; at least one.

        ``options`` are those of :meth:`speech_request`. Text of more than ``speech_chars``
        characters is spoken in parts of whole sentences. Raises RequestError.
        """
        most = self.speech_chars
        said = parts(text, most) if most is not None and len(text) > most else []
        return [self.speech_request(part, **options) for part in said or [text]]

    def sound(self, ids: Sequence[int], items: Mapping[str, np.ndarray]) -> np.ndarray:
        """What more of an answer to a speech request sounds like: float32 ``[T]``, full scale 1.

        ``ids`` are its next tokens, and ``items`` what came out of its stream meanwhile, by the
        names of outputs that are told. Pieces, however cut, join to the whole. By default: the
        items named ``sound``.
        """
        samples: np.ndarray = items.get("sound", _SILENCE)
        return samples.astype(np.float32, copy=False).ravel()

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, as a prompt has them. Raises RequestError if it takes no text."""
        raise _unsupported(self, "text")

    def ids_request(self, ids: Sequence[int], **options: Any) -> Request:
        """A request that continues ``ids``. Raises RequestError if the model takes no text."""
        raise _unsupported(self, "token ids")

    def token_bytes(self, token: int) -> bytes:
        """What ``token`` is in UTF-8, by itself: it may be a part of a character, or nothing."""
        return self.decode([token]).encode()

    def default_sampling(self) -> dict[str, Any]:
        """The model's own settings, by the names of SamplingSettings."""
        return {}

    def answer(self, request: Request, tools: Sequence[Mapping[str, Any]] = ()) -> Answer:
        """What takes the text of ``request``'s answer apart; by default it is all content.

        ``tools`` are those that the model may call; without any nothing in the text is a call.
        """
        return PlainAnswer()

    def traits(self) -> dict[str, Any]:
        """What clients may want to know: languages, voices, max_audio_seconds, …

        ``input_sample_rate`` is what sound is decoded to, ``sample_rate`` that of :meth:`sound`;
        sound longer than ``max_audio_seconds`` is refused; ``word_timestamps`` tells that words
        are timed.
        """
        return {}

    def capabilities(self) -> frozenset[str]:
        """Which of ``text``, ``chat``, ``audio``, ``speech`` the model answers."""
        kinds = {kind: f"{kind}_request" for kind in ("text", "chat", "audio", "speech")}
        own = type(self)
        return frozenset(k for k, m in kinds.items() if getattr(own, m) is not getattr(Front, m))

    def chat_options(self) -> frozenset[str]:
        """Which of ``think`` and ``tools`` :meth:`chat_request` takes."""
        return frozenset()

    def speech_options(self) -> frozenset[str]:
        """Which of ``language``, ``instructions`` (in words, how to speak) and ``reference`` (a
        voice to imitate: float32 ``[T]`` or ``[T, channels]``, with ``reference_rate`` in Hz,
        ``reference_text`` and ``speaker_only``) :meth:`speech_request` takes."""
        return frozenset()


FrontMaker = Callable[[], Front]


def _unsupported(front: Front, what: str) -> Exception:
    from mstar_core.errors import RequestError, Words

    return RequestError(
        where=type(front).__name__,
        got=Words(what),
        want=f"one of: {', '.join(sorted(front.capabilities())) or 'token ids'}",
        fix="use a model that serves it",
    )
