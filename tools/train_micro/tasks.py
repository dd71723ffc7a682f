"""The tasks: each draws a question and its one right answer.

A pair of numbers is held out by its checksum: training never sees it. Every other task's instances
are so many that a draw of another seed is a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from string import ascii_uppercase
from zlib import crc32

from attrs import frozen

from tools.train_micro.grammar import SUBJECTS, draw
from tools.train_micro.words import CAPITALS, COLOURS, FOODS, KEYS, NAMES, PLACES, THINGS

_SYMBOLS = ascii_uppercase + "0123456789"
_WORDS = (*THINGS, *COLOURS, *FOODS)
HELD_OUT_OF = 20
"""One pair of numbers in so many is held out, unless both are below SMALL."""
SMALL = 20


@frozen
class Turn:
    """What a user says, and the answer."""

    task: str
    question: str
    answer: str


def is_held_out(a: int, sign: str, b: int) -> bool:
    """Whether training leaves out ``a sign b``."""
    return max(a, b) >= SMALL and crc32(f"{a}{sign}{b}".encode()) % HELD_OUT_OF == 0


def add(rng: Random, held_out: bool = False) -> Turn:
    """A sum of two numbers up to 999."""
    a, b = _pair(rng, "+", held_out)
    forms = (
        f"What is {a} + {b}?",
        f"{a} + {b} = ?",
        f"Add {a} and {b}.",
        f"What is {a} plus {b}?",
        f"{a}+{b}",
    )
    return Turn("add", rng.choice(forms), str(a + b))


def subtract(rng: Random, held_out: bool = False) -> Turn:
    """A difference of two numbers up to 999; one in five may be below zero."""
    a, b = _pair(rng, "-", held_out)
    forms = (
        f"What is {a} - {b}?",
        f"{a} - {b} = ?",
        f"Subtract {b} from {a}.",
        f"What is {a} minus {b}?",
        f"{a}-{b}",
    )
    return Turn("subtract", rng.choice(forms), str(a - b))


def _pair(rng: Random, sign: str, held_out: bool) -> tuple[int, int]:
    while True:
        a, b = _number(rng), _number(rng)
        if sign == "-" and a < b and rng.random() < 0.6:
            a, b = b, a
        if is_held_out(a, sign, b) == held_out:
            return a, b


def _number(rng: Random) -> int:
    draw = rng.random()
    return int(rng.random() * (10 if draw < 0.15 else 100 if draw < 0.4 else 1000))


def copy(rng: Random, held_out: bool = False) -> Turn:
    """A string of capitals and digits, or a few words, said again."""
    if rng.random() < 0.7:
        text = _string(rng, 2, 16)
        forms = (f"Repeat {text}", f"Copy {text}", f"Say {text} again.")
    else:
        text = " ".join(rng.choices(_WORDS, k=rng.randint(2, 8)))
        forms = (f"Repeat: {text}", f"Copy: {text}", f"Say again: {text}")
    return Turn("copy", rng.choice(forms), text)


def reverse(rng: Random, held_out: bool = False) -> Turn:
    """A string of capitals and digits, or a few words, backwards."""
    if rng.random() < 0.75:
        text = _string(rng, 2, 14)
        forms = (f"Reverse {text}", f"Write {text} backwards.", f"What is {text} reversed?")
        return Turn("reverse", rng.choice(forms), text[::-1])
    words = rng.choices(_WORDS, k=rng.randint(2, 7))
    text = " ".join(words)
    return Turn("reverse", f"Reverse the words: {text}", " ".join(reversed(words)))


def _string(rng: Random, least: int, most: int) -> str:
    return "".join(rng.choices(_SYMBOLS, k=rng.randint(least, most)))


def count(rng: Random, held_out: bool = False) -> Turn:
    """How often a letter stands in a string, how many words there are, or counting on."""
    kind = rng.random()
    if kind < 0.4:
        letters = rng.sample(ascii_uppercase, rng.randint(2, 4))
        text = "".join(rng.choices(letters, k=rng.randint(3, 12)))
        asked = rng.choice(letters)
        return Turn("count", f"How many {asked} are in {text}?", str(text.count(asked)))
    if kind < 0.7:
        words = rng.choices(_WORDS, k=rng.randint(1, 12))
        return Turn("count", f"How many words are here: {' '.join(words)}", str(len(words)))
    first = rng.randint(0, 90)
    last = first + rng.randint(1, 9)
    said = " ".join(map(str, range(first, last + 1)))
    return Turn("count", f"Count from {first} to {last}.", said)


def sentence(rng: Random, held_out: bool = False) -> Turn:
    """A sentence of the grammar, about something or not. Any sentence will do."""
    if rng.random() < 0.5:
        return Turn("sentence", "Write a sentence.", draw(rng))
    subject = rng.choice(SUBJECTS)
    return Turn("sentence", f"Write a sentence about the {subject}.", draw(rng, subject))


def talk(rng: Random, held_out: bool = False) -> Turn:
    """Greetings, what the model is, and capitals."""
    if rng.random() < 0.4:
        country = rng.choice(tuple(CAPITALS))
        asked = f"What is the capital of {country}?"
        return Turn("talk", asked, f"The capital of {country} is {CAPITALS[country]}.")
    asked, said = rng.choice(_TALK)
    return Turn("talk", asked, said)


_TALK = (
    ("Hello!", "Hello! What can I do for you?"),
    ("Hello", "Hello! What can I do for you?"),
    ("Hi!", "Hello! What can I do for you?"),
    ("Who are you?", "I am a very small model."),
    ("What are you?", "I am a very small model."),
    ("What can you do?", "I can add, subtract, copy, reverse, count, and read short stories."),
    ("Thank you!", "You are welcome."),
    ("Thanks!", "You are welcome."),
    ("Goodbye!", "Goodbye!"),
    ("Bye!", "Goodbye!"),
)

_SHORT: tuple[tuple[Callable[..., Turn], float], ...] = (
    (add, 0.27),
    (subtract, 0.30),
    (copy, 0.09),
    (reverse, 0.13),
    (count, 0.12),
    (sentence, 0.06),
    (talk, 0.03),
)
_DRAWS, _WEIGHTS = zip(*_SHORT, strict=True)


def short(rng: Random) -> Turn:
    """A turn of one of the tasks that need nothing said before."""
    return rng.choices(_DRAWS, _WEIGHTS)[0](rng)


def story(rng: Random, num_questions: int, held_out: bool = False) -> list[Turn]:
    """A short story with questions about it; the first one stands behind the story."""
    people = rng.sample(NAMES, rng.randint(2, 4))
    things = rng.sample(THINGS, rng.randint(1, 3))
    told: list[str] = []
    facts: dict[str, str] = {}
    for name in people:
        place, food = rng.choice(PLACES), rng.choice(FOODS)
        told.append(f"{name} is in the {place}.")
        facts[f"Where is {name}?"] = f"{name} is in the {place}."
        if rng.random() < 0.5:
            told.append(f"{name} likes {food}.")
            facts[f"What does {name} like?"] = f"{name} likes {food}."
    for thing in things:
        name, colour = rng.choice(people), rng.choice(COLOURS)
        told.append(f"{name} has a {colour} {thing}.")
        facts[f"Who has the {thing}?"] = f"{name} has the {thing}."
        facts[f"What colour is the {thing}?"] = f"The {thing} is {colour}."
    rng.shuffle(told)
    for _ in range(rng.randint(1, 6)):
        if rng.random() < 0.55:
            name, place = rng.choice(people), rng.choice(PLACES)
            told.append(f"{name} goes to the {place}.")
            facts[f"Where is {name}?"] = f"{name} is in the {place}."
        else:
            _hand_over(rng, people, things, told, facts)
    asked = rng.sample(sorted(facts), min(num_questions, len(facts)))
    return _asked("story", " ".join(told), [(each, facts[each]) for each in asked])


def _hand_over(
    rng: Random, people: list[str], things: list[str], told: list[str], facts: dict[str, str]
) -> None:
    thing = rng.choice(things)
    giver = facts[f"Who has the {thing}?"].split()[0]
    taker = rng.choice([name for name in people if name != giver])
    told.append(f"{giver} gives the {thing} to {taker}.")
    facts[f"Who has the {thing}?"] = f"{taker} has the {thing}."


def _asked(task: str, told: str, pairs: Sequence[tuple[str, str]]) -> list[Turn]:
    (first, answer), *others = pairs
    return [Turn(task, f"{told}\n{first}", answer), *(Turn(task, q, a) for q, a in others)]


def recall(rng: Random, size: int, num_questions: int, measure: Callable[[str], int]) -> list[Turn]:
    """Up to 40 keys get values, in about ``size`` tokens with sentences between; then questions.

    ``measure`` counts the tokens of a text. The first question is about any of the keys.
    """
    most = max(2, min(40, size // 12))
    keys = rng.sample(KEYS, rng.randint(2, most))
    facts = {key: f"The value of {key} is {_value(rng)}." for key in keys}
    parts = list(facts.values())
    left = size - sum(map(measure, parts))
    while left > 0:
        filler = draw(rng)
        left -= measure(filler)
        parts.append(filler)
    rng.shuffle(parts)
    asked = rng.sample(keys, min(num_questions, len(keys)))
    pairs = [(f"What is the value of {key}?", facts[key]) for key in asked]
    return _asked("recall", " ".join(parts), pairs)


def _value(rng: Random) -> str:
    return rng.choice(THINGS) if rng.random() < 0.5 else str(rng.randint(100, 999))
