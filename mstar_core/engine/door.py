"""The door: what a request must be before it may stand in line. Pure; nothing is taken."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import frozen

from mstar_core.engine.node import CARRY, NodeRuntime
from mstar_core.errors import RequestError, Words
from mstar_core.model.front import Request
from mstar_core.model.walks import Input, Walk
from mstar_core.resources.base import Opening
from mstar_core.sched.request import Track


@frozen(kw_only=True)
class Limits:
    """What one request may ask for, in tokens."""

    context: int
    """Prompt and new tokens together."""
    prompt: int | None = None
    """``limits.max_prompt_tokens``."""
    new: int | None = None
    """``limits.max_new_tokens``."""


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
        raise RequestError(
            where="prompt + max_new_tokens",
            got=Words(f"{prompt} prompt tokens and {new} new ones"),
            want=f"at most {limits.context} tokens together (the context)",
            fix=f"shorten the prompt, or ask for at most {max(0, limits.context - prompt)} tokens",
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


def openings(
    request: Request, nodes: Mapping[str, NodeRuntime], tracks: tuple[Track, ...]
) -> dict[str, Opening]:
    """Per node: the most tokens that the request can add to each resource over its life."""
    tokens: dict[str, dict[str, int]] = {name: {} for name in nodes}
    walks = {w.name: (node, w) for node in nodes.values() for w in node.walks.values()}
    items = _items_by_walk(request, walks, tracks)
    for name, count in items.items():
        node, walk = walks[name]
        spans = node.submodule.declare_step(walk.name, np.asarray([count], np.int64))
        keys = (
            {k: int(s[0]) for k, s in spans.items()}
            if spans is not None
            else {k: count for k in node.resources if k != CARRY}
        )
        for key, span in keys.items():
            tokens[node.name][key] = tokens[node.name].get(key, 0) + span
    ids = request.arrays.get("ids")
    settings = {"sampler": request.sampling, **request.settings}
    return {n: Opening(tokens=t, settings=settings, prompt_ids=ids) for n, t in tokens.items()}


def _items_by_walk(
    request: Request, walks: Mapping[str, tuple[NodeRuntime, Walk]], tracks: tuple[Track, ...]
) -> dict[str, int]:
    items: dict[str, int] = {}
    made: dict[str, int] = {}
    for track in tracks:
        for part in track.parts:
            walk = walks[part.walk][1]
            if walk.feed == "prompt":
                count = len(request.arrays[walk.inputs[0].name])
            elif walk.feed == "edge":
                count = made.get(walk.edge or "", 0)
            else:
                count = request.max_new_tokens - 1
            items[walk.name] = count
            for output in walk.outputs:
                if output.edge is not None:
                    made[output.edge] = made.get(output.edge, 0) + count
    return items
