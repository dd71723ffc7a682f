"""The API process's side of decoding: a few sounds at once, each by a process of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
from attrs import frozen

from mstar_core.config.limits import LimitsConfig
from mstar_core.serving import codec
from mstar_core.serving.errors import ApiError
from mstar_core.serving.media.order import Decoded, Order, Outcome

AT_ONCE = 4
"""Sounds that are decoded at the same time; others wait."""
MAX_WAITING = 64
"""Sounds that wait; more are refused."""
_GRACE_S = 1.0
_MAX_OUTCOME = 4096


@frozen(kw_only=True, eq=False)
class Sound:
    """What was heard: mono."""

    samples_T: np.ndarray
    """float32 ``[T]``."""
    rate: int
    seconds: float


class Decoder:
    """Decodes sound that strangers sent. All calls are made on one event loop."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Start the process that decodes, ahead of the first sound; harmless where there is one.

        Raises ApiError ``route_not_offered`` where the library that reads sound is not installed.
        """
        if not _is_over(self._control):
            return
        self.close()
        if find_spec("soundfile") is None:
            message = "The server has been installed without what reads sound (mstar-core[audio])."
            raise ApiError("route_not_offered", message)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.decode_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
            )

    def close(self) -> None:
        """End the process; sounds that are being decoded are given up."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def decode(self, file: int, *, max_seconds: float, rate: int | None) -> Sound:
        """The sound in the descriptor ``file``, at ``rate`` (None: its own).

        Raises ApiError: ``invalid_audio`` for what cannot be read, also where its decoding ends
        the process that does it; ``audio_too_long``; ``overloaded`` where too many wait.
        """
        if self._waiting >= MAX_WAITING:
            raise ApiError("overloaded", "Too many sounds wait to be decoded.", retry_after_s=1)
        order = Order(
            max_seconds=min(max_seconds, self._limits.max_audio_seconds),
            rate=rate,
            memory=self._limits.media_memory,
            timeout_s=self._limits.media_timeout_s,
        )
        self._waiting += 1
        try:
            async with self._room:
                return await self._decoded(file, order)
        finally:
            self._waiting -= 1

    async def _decoded(self, file: int, order: Order) -> Sound:
        for _ in range(2):
            self.start()
            control, started = self._control, time.monotonic()
            data, files = await self._asked(file, order)
            try:
                if data:
                    return _sound(data, files)
            finally:
                for made in files:
                    os.close(made)
            if time.monotonic() - started >= order.timeout_s:
                message = f"The file could not be decoded in {order.timeout_s:g} s."
                raise ApiError("invalid_audio", message, param="file")
            if not _is_over(control):
                raise ApiError("invalid_audio", "The file cannot be decoded.", param="file")
        raise ApiError("overloaded", "Sound cannot be decoded at present.", retry_after_s=1)

    async def _asked(self, file: int, order: Order) -> tuple[bytes, list[int]]:
        """The outcome and its descriptors; empty where the process ended without one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.setblocking(False)
            with theirs:
                try:
                    sent = [theirs.fileno(), file]
                    socket.send_fds(_there(self._control), [codec.pack(order)], sent)
                except OSError:
                    return b"", []
            try:
                await asyncio.wait_for(_readable(ours), order.timeout_s + _GRACE_S)
                data, files, _, _ = socket.recv_fds(ours, _MAX_OUTCOME, 1)
            except (TimeoutError, OSError):
                return b"", []
            return data, files


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _sound(data: bytes, files: list[int]) -> Sound:
    outcome: Outcome = codec.packed(data, Outcome)
    if not isinstance(outcome, Decoded):
        raise ApiError(outcome.code, outcome.message, param="file")
    samples_T = np.empty(outcome.samples, dtype=np.float32)
    with samples_T.data.cast("B") as rest:
        done = 0
        while done < len(rest):
            count = os.preadv(files[0], [rest[done:]], done)
            if count == 0:
                raise ApiError("invalid_audio", "The file cannot be decoded.", param="file")
            done += count
    return Sound(samples_T=samples_T, rate=outcome.rate, seconds=outcome.seconds)


def _is_over(control: socket.socket | None) -> bool:
    """Whether the process at the other end has ended."""
    if control is None or control.fileno() < 0:
        return True
    try:
        return not control.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _there(control: socket.socket | None) -> socket.socket:
    if control is None:
        raise OSError("the decoder is closed")
    return control
