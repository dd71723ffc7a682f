"""The tokenizer, learnt from the corpus, the chat template, and a fast encoder for training.

Byte-level BPE. A capital or a digit on its own is one token, so that strings and numbers are seen
symbol by symbol; a word is a token with the blank in front of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tools.train_micro.tasks import Turn, recall, short, story

TEXT_IDS = 1272
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>")
VOCAB = 1280
CONTEXT = 4096
_SPLIT = r" ?\p{Lu}?[\p{Ll}\p{Lo}\p{M}]+|\p{L}|\p{N}|\s|[^\s\p{L}\p{N}]"
_ASCII = re.compile(r" ?[A-Z]?[a-z]+|[A-Za-z]|[0-9]|\s|[^\sA-Za-z0-9]")
"""The same cut for texts of the corpus, which are ASCII."""

TEMPLATE = """\
{%- macro words(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is not none -%}
        {%- for part in content -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- if not messages | selectattr('role', 'equalto', 'user') | list -%}
    {{- raise_exception('no user message') -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' and not loop.first -%}
        {{- raise_exception('the system message must come first') -}}
    {%- elif message.role not in ('system', 'user', 'assistant') -%}
        {{- raise_exception('unknown role ' ~ message.role) -}}
    {%- endif -%}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ (words(message.content) | trim) -}}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def make_tokenizer(seed: int = 9, num_turns: int = 60_000) -> Tokenizer:
    """The tokenizer, learnt from ``num_turns`` turns of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_IDS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, num_turns), trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens(list(PLAIN))
    return tokenizer


def _texts(seed: int, num_turns: int) -> Iterator[str]:
    rng = Random(seed)
    for index in range(num_turns):
        turns: Sequence[Turn] = [short(rng)]
        if index % 4 == 0:
            turns = story(rng, 3) if index % 8 else recall(rng, 300, 3, lambda text: 8)
        for turn in turns:
            yield f"user\n{turn.question}\nassistant\n{turn.answer}\nsystem\n"


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer, its settings and the template, as published checkpoints have them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "TokenizersBackend",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
    }
    text = json.dumps(settings, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


class Encoder:
    """Token ids of texts of the corpus, each word looked up once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self.end_of_text, self.start, self.end = map(tokenizer.token_to_id, SPECIAL)
        newline = self.ids("\n")
        self._after = [self.end, *newline]
        self._user = [self.start, *self.ids("user\n")]
        self._assistant = [self.start, *self.ids("assistant\n")]

    def ids(self, text: str) -> list[int]:
        """What the tokenizer gives for ``text``."""
        known, ids = self._known, []
        for word in _ASCII.findall(text):
            if word not in known:
                known[word] = self._tokenizer.encode(word, add_special_tokens=False).ids
            ids += known[word]
        return ids

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        return len(self.ids(text))

    def prompt(self, question: str) -> list[int]:
        """A user's turn as the template writes it, and the opening of the answer."""
        return self._user + self.ids(question) + self._after + self._assistant

    def turn(self, turn: Turn) -> tuple[list[int], list[int]]:
        """The ids of a turn and its answer, and which of them are to be learnt (1) or not (0)."""
        prompt, answer = self.prompt(turn.question), self.ids(turn.answer)
        ids = prompt + answer + self._after
        return ids, [0] * len(prompt) + [1] * (len(answer) + 1) + [0]

    def bare(self, turn: Turn) -> tuple[list[int], list[int]]:
        """A turn without template: the question, a line break, the answer, the end of the text."""
        prompt, answer = self.ids(turn.question + "\n"), self.ids(turn.answer)
        return [*prompt, *answer, self.end_of_text], [0] * len(prompt) + [1] * (len(answer) + 1)
