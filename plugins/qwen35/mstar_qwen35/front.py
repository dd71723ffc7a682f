"""Text and chats to requests, ids to text. transformers is imported when a tokenizer is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mstar_core.config.generation import FILE, generation_defaults
from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import CheckpointError, RequestError, Words
from mstar_core.model.answer import Answer
from mstar_core.model.front import Front, Request
from mstar_qwen35.answer import END_THINK, THINK, Qwen35Answer
from mstar_qwen35.byte_level import BYTES
from mstar_qwen35.chat import check_messages, for_template, refused
from mstar_qwen35.config import Qwen35Config
from mstar_qwen35.prompts import check_text, listed_ids

_TURN, _TURN_END = "<|im_start|>", "<|im_end|>"
_TAIL = 32
"""Tokens at the end of a prompt in which its last turn begins."""
_TOKENIZER = "tokenizer.json"


class Qwen35Front(Front):
    """The front of one checkpoint folder. Every ``options`` is a field of :class:`Request`."""

    def __init__(self, folder: Path, config: Qwen35Config) -> None:
        self.folder = folder
        self.config = config

    @cached_property
    def stop_ids(self) -> frozenset[int]:  # type: ignore[override]
        """The configuration's end ids, and the tokenizer's where the folder has a tokenizer."""
        if not self._has_tokenizer:
            return self.config.eos_ids
        known = {self.tokenizer.eos_token_id, self.tokenizer.get_vocab().get(_TURN_END)}
        return self.config.eos_ids | {i for i in known if i is not None}

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer. Raises CheckpointError where the folder has none."""
        if not self._has_tokenizer:
            raise self._no_tokenizer(f"no {_TOKENIZER}")
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(str(self.folder), local_files_only=True)
        except Exception as error:  # the tokenizers library raises bare Exception
            raise self._no_tokenizer(str(error).strip().split("\n")[0]) from error

    @property
    def _has_tokenizer(self) -> bool:
        return (self.folder / _TOKENIZER).is_file()

    def _no_tokenizer(self, got: str) -> CheckpointError:
        return CheckpointError(
            where=str(self.folder / _TOKENIZER),
            got=Words(got),
            want=f"{_TOKENIZER} and tokenizer_config.json beside config.json",
            fix="fetch the whole checkpoint, or send token ids",
        )

    def default_sampling(self) -> dict[str, Any]:
        """What ``generation_config.json`` says of sampling, by the names of SamplingSettings."""
        given = generation_defaults(self.folder)
        names = ["repetition_penalty"]
        if given.get("do_sample"):
            given = {"temperature": 1.0, **given}
            names += ["temperature", "top_k", "top_p", "min_p"]
        return {name: given[name] for name in names if given.get(name) is not None}

    def ids_request(self, ids: Sequence[int] | np.ndarray, **options: Any) -> Request:
        """A request that continues ``ids``.

        Raises RequestError for no ids, or one that is no integer of the vocabulary.
        """
        ids = listed_ids(ids, self.config.vocab_size)
        options.setdefault("stop_ids", self.stop_ids)
        if options.get("sampling") is None:
            options["sampling"] = self._own_sampling()
        return Request(arrays={"ids": np.asarray(ids, dtype=np.int64)}, **options)

    def _own_sampling(self) -> SamplingSettings:
        """The checkpoint's own settings. Raises CheckpointError for one that cannot be used."""
        try:
            return SamplingSettings(**self.default_sampling())
        except RequestError as error:
            raise CheckpointError(
                where=f"{self.folder / FILE}: {error.where}",
                got=error.got,
                want=error.want,
                fix="mend the file, or send sampling settings with the request",
            ) from error

    def text_request(self, prompt: str, **options: Any) -> Request:
        return self.ids_request(self.encode(prompt), **options)

    def chat_request(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        think: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Request:
        """A request that answers ``messages``.

        ``think`` opens or closes the thinking block; None leaves it to the checkpoint's template.
        Raises RequestError for images and for what the template refuses.
        """
        check_messages(messages)
        return self.ids_request(self.encode(self.render(messages, think, tools)), **options)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        think: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        answer: bool = True,
    ) -> str:
        """``messages`` as the checkpoint's template writes them; ``answer`` opens the next turn."""
        if not self.tokenizer.chat_template:
            raise RequestError(
                where="messages",
                got=Words("a chat for a checkpoint without a chat template"),
                want="a plain prompt",
                fix="send the text as a prompt, or use a checkpoint with a chat template",
            )
        switch = {} if think is None else {"enable_thinking": think}
        shown = for_template(messages)
        try:
            text: str = self.tokenizer.apply_chat_template(
                shown,
                tools=tools,
                tokenize=False,
                add_generation_prompt=answer,
                **switch,
            )
        except Exception as error:  # the template is the checkpoint's own program
            raise refused(Words(error)) from error
        return text

    def chat_options(self) -> frozenset[str]:
        return frozenset({"think", "tools"})

    def answer(self, request: Request, tools: Sequence[Mapping[str, Any]] = ()) -> Answer:
        """What takes an answer apart. The end of the prompt says whether it begins with reasoning:
        its last turn has opened a block and not closed it."""
        tail = self.tokenizer.decode(request.arrays["ids"][-_TAIL:].tolist())
        turn = tail.rpartition(_TURN)[2]
        return Qwen35Answer(thinking=turn.rfind(THINK) > turn.rfind(END_THINK), tools=tools)

    def token_bytes(self, token: int) -> bytes:
        """What ``token`` is in UTF-8: a part of a character too; a special token by its name."""
        name = self.tokenizer.convert_ids_to_tokens(token)
        if name is None or token in self._added:
            return (name or "").encode()
        return bytes(BYTES[each] for each in name)

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self.tokenizer.added_tokens_decoder)

    def encode(self, text: str) -> list[int]:
        check_text(text)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``; thinking and tool tags are text and stay."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def tokenizer_size(folder: Path) -> int | None:
    """One past the last id of the tokenizer in ``folder``; None without one.

    The embedding may be longer. Raises CheckpointError for a file that holds no tokenizer.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        added = [token["id"] for token in read["added_tokens"]]
        ids: list[int] = [*read["model"]["vocab"].values(), *added]
        return 1 + max(ids)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            where=str(file),
            got=Words(f"{type(error).__name__}: {error}"),
            want="a tokenizer with model.vocab and added_tokens",
            fix="fetch the file again",
        ) from error
