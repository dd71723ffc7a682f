"""Scripted faults: what a prompt orders of its own request, for tests of reliability.

::

    !raise@3 the rest            at token 3, the forward raises
    !delay=0.05 the rest         every step of the request takes 50 ms

An order is ``!KIND``, then ``=SECONDS`` (``delay`` alone), then ``@TOKEN``, counted from 0;
without it, every token. It is read only where ``model.options.faults`` is true, and is echoed too.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from typing import NoReturn

from attrs import frozen

from mstar_core.errors import RequestError, Words

KINDS = (
    "none",
    "delay",
    "raise",
    "nan",
    "garbage",
    "hang",
    "exit",
    "segv",
    "oom",
    "hear",
    "voice",
    "front",
    "decode",
)
EXIT_CODE = 70
NO_BYTE = 9999
"""A token id that stands for no byte."""
_ORDER = re.compile(r"!([a-z]+)(?:=(\d+(?:\.\d+)?))?(?:@(\d+))?(?=\s|$)")


@frozen
class ScriptedFault(Exception):
    """What a scripted fault raises: a bug, as far as the engine can know."""

    kind: str
    token: int


@frozen
class Order:
    """One order, as three int64 numbers: kind, token (-1: each), microseconds."""

    kind: str = "none"
    token: int = -1
    micros: int = 0

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What travels to the device."""
        return KINDS.index(self.kind), self.token, self.micros

    def applies(self, token: int) -> bool:
        """Whether it strikes at this token."""
        return self.kind != "none" and self.token in (-1, token)


def order_of(text: str) -> Order:
    """The order at the beginning of ``text``, if there is one. Raises RequestError if unknown."""
    found = _ORDER.match(text)
    if found is None:
        return Order()
    kind, seconds, token = found.groups()
    if kind not in KINDS[1:]:
        raise RequestError(
            where="prompt",
            got=Words(f"the order !{kind}"),
            want=f"one of: {', '.join(f'!{name}' for name in KINDS[1:])}",
            fix="correct it, or set model.options.faults to false",
        )
    return Order(kind, -1 if token is None else int(token), int(float(seconds or 0) * 1e6))


def strike(kind: str, token: int, micros: int) -> None:
    """Do to the process what the order says; ``nan`` and ``garbage`` are the caller's."""
    if kind == "delay":
        time.sleep(micros / 1e6)
    elif kind in ("raise", "hear", "voice", "front", "decode"):
        raise ScriptedFault(kind, token)
    elif kind == "oom":
        import torch

        raise torch.OutOfMemoryError("out of memory, as ordered")
    elif kind == "hang":
        _hang()
    elif kind == "exit":
        os._exit(EXIT_CODE)
    elif kind == "segv":
        ctypes.string_at(0)


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)
