"""The door: what a request must be before it may stand in line. Pure; nothing is taken."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import frozen

from mstar_core.engine.node import NodeRuntime
from mstar_core.errors import BusyError, RequestError, Words
from mstar_core.model.front import Request
from mstar_core.model.walks import Input, Walk
from mstar_core.names import suggest
from mstar_core.sched.request import RequestState, Track


@frozen(kw_only=True)
class Limits:
    """What one request may ask for, in tokens."""

    context: int
    """Prompt and new tokens together."""
    prompt: int | None = None
    """``limits.max_prompt_tokens``."""
    new: int | None = None
    """``limits.max_new_tokens``."""
    waiting: int | None = None
    """``limits.max_waiting``, requests."""
    waiting_tokens: int | None = None
    """``limits.max_waiting_tokens``."""


def check_request(
    request: Request, walks: Mapping[str, Walk], tracks: tuple[Track, ...], limits: Limits
) -> None:
    """Raise RequestError for arrays, limits or ids that could never be served."""
    limit = request.max_new_tokens
    if type(limit) is not int or limit < 1:
        raise RequestError(
            where="max_new_tokens",
            got=limit,
            want="an integer of at least 1 (tokens)",
            fix="ask for at least one token",
        )
    _check_times(request)
    prompt = 0
    for walk in (walks[part.walk] for track in tracks for part in track.parts):
        if walk.feed != "prompt":
            continue
        lengths = {
            given.name: _check_input(request, given)
            for given in walk.inputs
            if walk.edge is None or given.name in request.arrays
        }
        if len(set(lengths.values())) > 1:
            raise RequestError(
                where="arrays",
                got=lengths,
                want=f"one length for all inputs of walk {walk.name}",
                fix="give every input of the walk the same number of items",
            )
        if walk.samples:
            prompt = max(prompt, *lengths.values())
    _check_limits(prompt, limit, limits)


def passed_by(request: Request, walks: Mapping[str, Walk]) -> frozenset[str]:
    """The optional walks that ``request`` brings nothing for, and those that they would feed."""
    optional = {name: walk for name, walk in walks.items() if walk.optional}
    passed = {
        name
        for name, walk in optional.items()
        if walk.feed == "prompt" and not any(i.name in request.arrays for i in walk.inputs)
    }
    filled = {o.edge for name, walk in walks.items() if name not in passed for o in walk.outputs}
    unfed = {n for n, walk in optional.items() if walk.feed == "edge" and walk.edge not in filled}
    return frozenset(passed | unfed)


def check_settings(request: Request, nodes: Mapping[str, NodeRuntime]) -> None:
    """Raise RequestError for settings that no resource reads."""
    resources = (resource for node in nodes.values() for resource in node.resources.values())
    known = sorted({name for resource in resources for name in resource.request_settings})
    for name in request.settings:
        if name not in known:
            raise RequestError(
                where=f"settings.{name}",
                got=Words("a name that no resource of the model reads"),
                want=f"one of: {', '.join(known)}" if known else "no settings",
                fix=suggest(name, known),
            )


def check_queue(state: RequestState, waiting: int, tokens: int, limits: Limits) -> None:
    """Raise BusyError for a request that would make the line too long."""
    if limits.waiting is not None and waiting >= limits.waiting:
        raise BusyError(
            where="the line",
            got=Words(f"{waiting} requests that wait"),
            want=f"fewer than {limits.waiting} (limits.max_waiting of this deployment)",
            fix="send the request again later",
        )
    most, own = limits.waiting_tokens, state.num_tokens
    if most is not None and waiting and tokens + own > most:
        raise BusyError(
            where="the line",
            got=Words(f"{own} tokens behind {tokens} that wait"),
            want=f"at most {most} together (limits.max_waiting_tokens of this deployment)",
            fix="send the request again later",
        )


def _check_times(request: Request) -> None:
    if type(request.priority) is not int:
        raise RequestError(
            where="priority",
            got=request.priority,
            want="an integer, higher is served earlier",
            fix="leave it out, or write for example 1",
        )
    deadline = request.deadline_s
    if deadline is not None and (
        type(deadline) not in (int, float) or not 0 < deadline < float("inf")
    ):
        raise RequestError(
            where="deadline_s",
            got=deadline,
            want="a positive number of seconds",
            fix="leave it out, or write for example 30",
        )


def _check_limits(prompt: int, new: int, limits: Limits) -> None:
    for name, given, most in (("prompt", prompt, limits.prompt), ("new", new, limits.new)):
        if most is not None and given > most:
            raise RequestError(
                where=f"max_{name}_tokens",
                got=Words(f"{given} {name} tokens"),
                want=f"at most {most} (limits.max_{name}_tokens of this deployment)",
                fix="shorten the prompt" if name == "prompt" else f"ask for at most {most} tokens",
            )
    if prompt + new > limits.context:
        room, cut = limits.context - prompt, f"shorten the prompt to {limits.context - 1} tokens"
        raise RequestError(
            where="prompt + max_new_tokens",
            got=Words(f"{prompt} prompt tokens and {new} new ones"),
            want=f"at most {limits.context} tokens together (the context)",
            fix=f"shorten the prompt, or ask for at most {room} tokens" if room > 0 else cut,
        )


def _check_input(request: Request, given: Input) -> int:
    array = request.arrays.get(given.name)
    if array is None:
        raise RequestError(
            where=f"arrays.{given.name}",
            got=Words("absent"),
            want=f"{given.dtype} [items{''.join(f', {n}' for n in given.shape)}]",
            fix="give the array, or build the request with the model's front",
        )
    if not isinstance(array, np.ndarray):
        raise RequestError(
            where=f"arrays.{given.name}",
            got=Words(f"a {type(array).__name__}"),
            want=f"a numpy array, {given.dtype} [items{''.join(f', {n}' for n in given.shape)}]",
            fix="make it an array with numpy.asarray",
        )
    kinds = "iu" if given.dtype.lstrip("u").startswith("int") else "iuf"
    if array.ndim == 0 or array.shape[1:] != given.shape or array.dtype.kind not in kinds:
        raise RequestError(
            where=f"arrays.{given.name}",
            got=Words(f"{array.dtype} {list(array.shape)}"),
            want=f"{given.dtype} [items{''.join(f', {n}' for n in given.shape)}]",
            fix="give one item per step along the first axis",
        )
    if len(array) == 0:
        raise RequestError(
            where=f"arrays.{given.name}",
            got=Words("no items (an empty prompt)"),
            want="at least one item",
            fix="give a prompt that is not empty",
        )
    if given.below is not None:
        bad = array[(array < 0) | (array >= given.below)]
        if len(bad):
            raise RequestError(
                where=f"arrays.{given.name}",
                got=bad[0].item(),
                want=f"ids from 0 to {given.below - 1}",
                fix="encode the prompt with this model's tokenizer",
            )
    return len(array)
