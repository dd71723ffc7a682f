"""A request as it crosses from an API process to the engine process, and back to what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import numpy as np

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import RequestError, Words
from mstar_core.model.front import Request
from mstar_core.serving.arena import ArenaView
from mstar_core.serving.messages import DTYPES, Array, Dtype, Items, Sampling, Submit

ITEMS_BYTES = 1 << 20
"""Bytes of one output in one message, unless one item alone has more."""
_SAMPLING = Sampling.__struct_fields__
_KINDS: dict[np.dtype, Dtype] = {np.dtype(name): name for name in get_args(Dtype)}

Place = Callable[[np.ndarray], "bytes | int"]
"""Where the elements of an array go: into the message, or to a start in shared memory."""


def submit_of(request: Request, stream: int, group: str, place: Place) -> Submit:
    """The message for ``request``. Stop strings stay behind, since the engine makes no text.

    Raises RequestError for an array of another type than cross, and what ``place`` raises.
    """
    return Submit(
        stream=stream,
        group=group,
        id=request.id,
        arrays=tuple(_array_of(name, given, place) for name, given in request.arrays.items()),
        max_new_tokens=request.max_new_tokens,
        stop_ids=list(request.stop_ids),
        ignore_stop_ids=request.ignore_stop_ids,
        gated=request.gated,
        priority=request.priority,
        deadline_s=request.deadline_s,
        sampling=Sampling(*(getattr(request.sampling, name) for name in _SAMPLING)),
        settings=dict(request.settings),
    )


def request_of(message: Submit, view: ArenaView) -> Request:
    """The request in ``message``; its large arrays stay in shared memory, read-only.

    Raises RequestError for settings that no request has, FrameError for arrays that are not there.
    """
    sampling: dict[str, Any] = {name: getattr(message.sampling, name) for name in _SAMPLING}
    return Request(
        id=message.id,
        arrays={given.name: view.array(given) for given in message.arrays},
        max_new_tokens=message.max_new_tokens,
        stop_ids=frozenset(message.stop_ids),
        ignore_stop_ids=message.ignore_stop_ids,
        gated=message.gated,
        priority=message.priority,
        deadline_s=message.deadline_s,
        sampling=SamplingSettings(**sampling),
        settings=message.settings,
    )


def items_of(stream: int, arrays: Mapping[str, np.ndarray]) -> Iterator[Items]:
    """The messages for what came out of ``stream``, in order; an output ``[items, *shape]`` each.

    Raises RequestError for an array of another type than cross.
    """
    for name, array in arrays.items():
        most = max(1, ITEMS_BYTES // max(1, array[:1].nbytes))
        for at in range(0, len(array), most):
            yield Items(stream, (_array_of(name, array[at : at + most], np.ndarray.tobytes),))


def arrays_of(message: Items) -> Iterator[tuple[str, np.ndarray]]:
    """The outputs in ``message`` by name, read-only."""
    for each in message.arrays:
        yield each.name, np.frombuffer(bytes(each.data), each.dtype).reshape(each.shape)


def _kind_of(given: np.ndarray) -> Dtype | None:
    """The name of a dtype that crosses, in whatever order its bytes are."""
    return _KINDS.get(given.dtype) or _KINDS.get(given.dtype.newbyteorder("="))


def _array_of(name: str, given: Any, place: Place) -> Array:
    kind = _kind_of(given) if isinstance(given, np.ndarray) and given.ndim else None
    if kind is None:
        got = given.dtype if isinstance(given, np.ndarray) else f"a {type(given).__name__}"
        raise RequestError(
            where=f"arrays.{name}",
            got=Words(str(got)),
            want=f"a numpy array of one or more axes, of: {', '.join(DTYPES)}",
            fix="build the request with the model's front",
        )
    native = np.ascontiguousarray(given, given.dtype.newbyteorder("="))
    return Array(name, kind, given.shape, place(native))
