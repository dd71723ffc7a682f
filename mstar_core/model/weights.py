"""Where each parameter comes from in a checkpoint, checked as a whole before a byte is loaded.

A parameter is filled from row ranges of one or more stored tensors, laid one behind the other (so
``q``, ``k`` and ``v`` fill one packed matrix); without a rule, from the tensor of its own name. It
keeps its own dtype: what is built in fp32 stays fp32 where the rest is bf16. :func:`plan_weights`
needs names and shapes only, so a map can be checked against a published listing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from attrs import define, field
from torch import Tensor, nn

from mstar_core.errors import CheckpointError, Words
from mstar_core.model.weight_map import Fill, Piece, Rule, Source, WeightMap, WeightPlan

__all__ = ["Rule", "Source", "WeightMap", "WeightPlan", "owned_tensors", "plan_weights"]

FLOATS = ("F64", "F32", "F16", "BF16")
"""Stored dtypes that a floating-point parameter takes; others need a scale, which has no place."""

Shape = tuple[int, ...]


def plan_weights(
    modules: Mapping[str, nn.Module],
    maps: Mapping[str, WeightMap],
    shapes: Mapping[str, Shape],
    *,
    dtypes: Mapping[str, str] | None = None,
    where: str = "checkpoint",
) -> WeightPlan:
    """Match modules (on any device, meta too) with the names and shapes of stored tensors.

    ``modules`` and ``maps`` have the same keys, one a node; together they account for the whole
    checkpoint. Raises one CheckpointError that names every tensor that is missing, unused, of
    another shape or dtype, or given twice.
    """
    matching = _Matching(shapes=shapes, dtypes=dtypes or {})
    for name, module in modules.items():
        matching.module(name, module, maps[name])
    patterns = [pattern for each in maps.values() for pattern in each.set_aside]
    set_aside = matching.left_over(patterns)
    if matching.problems:
        raise CheckpointError(
            where=where,
            got=Words("\n        ".join(["tensors that do not fit:", *matching.problems])),
            want="every parameter filled once and every stored tensor used or set aside",
            fix="use a checkpoint of this model and size, or mend the model's weight map",
        )
    return WeightPlan(fills=tuple(matching.fills), set_aside=set_aside)


def owned_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by their first name; a shared one is there once."""
    spelled = module.state_dict(keep_vars=True)
    first_name = {id(tensor): name for name, tensor in reversed(spelled.items())}
    return {name: tensor for name, tensor in spelled.items() if first_name[id(tensor)] == name}


@define(kw_only=True)
class _Matching:
    """One pass of plan_weights: what is filled, which rows were used, what is wrong."""

    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    fills: list[Fill] = field(factory=list)
    problems: list[str] = field(factory=list)
    used: dict[str, list[tuple[int, int]]] = field(factory=dict)

    def module(self, name: str, module: nn.Module, weight_map: WeightMap) -> None:
        """Match every tensor of one module."""
        owned = owned_tensors(module)
        first_name = {id(tensor): target for target, tensor in owned.items()}
        spelled = {n: first_name[id(t)] for n, t in module.state_dict(keep_vars=True).items()}
        rules: dict[str, Rule] = {}
        for rule in weight_map.rules:
            target = spelled.get(rule.target)
            if target is None:
                self.problems.append(f"no parameter  {rule.target}, which the weight map fills")
            elif target in rules:
                self.problems.append(f"filled twice  {rule.target}")
            else:
                rules[target] = rule
        for target, tensor in owned.items():
            self.fill(name, target, tensor, rules.get(target, Rule.of(target, target)), weight_map)

    def fill(
        self, module: str, target: str, tensor: Tensor, rule: Rule, weight_map: WeightMap
    ) -> None:
        """Match one parameter with the rows that fill it."""
        pieces: list[Piece] = []
        at, problems = 0, len(self.problems)
        for source in rule.sources:
            stored = self.find(source.name, weight_map)
            if stored is None:
                want = list(tensor.shape) if len(rule.sources) == 1 else f"rows of {target}"
                self.problems.append(f"missing       {source.name} {want}")
                continue
            num_rows = (self.shapes[stored] or (1,))[0]
            start, stop = source.rows or (0, num_rows)
            self.check_piece(stored, target, tensor, (start, stop, num_rows))
            pieces.append(Piece(stored, start, stop, at))
            self.used.setdefault(stored, []).append((start, stop))
            at += stop - start
        if len(self.problems) == problems and at != (tensor.shape or (1,))[0]:
            given = ", ".join(f"{p.name} {list(self.shapes[p.name])}" for p in pieces)
            self.problems.append(f"wrong shape   {given}; want {target} {list(tensor.shape)}")
        self.fills.append(Fill(module=module, target=target, pieces=tuple(pieces)))

    def check_piece(
        self, stored: str, target: str, tensor: Tensor, rows: tuple[int, int, int]
    ) -> None:
        """Rows exist and are as wide as the parameter's; axes of length 1 do not count."""
        shape, (start, stop, num_rows) = self.shapes[stored], rows
        wide = [axis for axis in shape[1:] if axis != 1]
        if not 0 <= start <= stop <= num_rows or wide != [n for n in tensor.shape[1:] if n != 1]:
            cut = "" if (start, stop) == (0, num_rows) else f" rows {start} to {stop}"
            want = f"want {target} {list(tensor.shape)}"
            self.problems.append(f"wrong shape   {stored} {list(shape)}{cut}; {want}")
        dtype = self.dtypes.get(stored)
        if dtype is not None and (dtype in FLOATS) != tensor.dtype.is_floating_point:
            want = f"want a dtype that becomes {str(tensor.dtype).removeprefix('torch.')}"
            self.problems.append(f"wrong dtype   {stored} is {dtype}; {want}")

    def find(self, name: str, weight_map: WeightMap) -> str | None:
        """The stored name for ``name``: itself, an alias, or one it is tied to."""
        group = next((tied for tied in weight_map.tied if name in tied), (name,))
        present: list[str] = []
        for member in group:
            spellings = [s for s in _spellings(member, weight_map.aliases) if s in self.shapes]
            if len(spellings) > 1:
                self.problems.append(f"given twice   {' and '.join(spellings)}")
            present += spellings[:1]
        for copy in present[1:]:
            self.used.setdefault(copy, []).append((0, (self.shapes[copy] or (1,))[0]))
            if self.shapes[copy] != self.shapes[present[0]]:
                shapes = f"{list(self.shapes[copy])}; want {list(self.shapes[present[0]])}"
                self.problems.append(f"wrong shape   {copy} {shapes} as {present[0]}")
        return present[0] if present else None

    def left_over(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """What the patterns set aside; stored tensors and rows that nobody used are problems."""
        set_aside: list[str] = []
        for name, shape in self.shapes.items():
            if name not in self.used and any(fnmatchcase(name, each) for each in patterns):
                set_aside.append(name)
            elif name not in self.used:
                self.problems.append(f"unused        {name} {list(shape)}")
            else:
                self.problems += self.unused_rows(name, (shape or (1,))[0])
        return tuple(set_aside)

    def unused_rows(self, name: str, num_rows: int) -> list[str]:
        """Row ranges of a used tensor that no parameter takes."""
        gaps, at = [], 0
        for start, stop in [*sorted(self.used[name]), (num_rows, num_rows)]:
            if start > at:
                gaps.append(f"unused        {name} rows {at} to {start}")
            at = max(at, stop)
        return gaps


def _spellings(name: str, aliases: Mapping[str, tuple[str, ...]]) -> list[str]:
    others = [
        other + name.removeprefix(prefix)
        for prefix, prefixes in aliases.items()
        if name.startswith(prefix)
        for other in prefixes
    ]
    return [name, *others]
