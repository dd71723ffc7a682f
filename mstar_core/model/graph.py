"""What a model declares must fit together: graph, walks, nodes and edges."""

from __future__ import annotations

from mstar_core.errors import ConfigError, Words
from mstar_core.model.walks import Edge, Node, Sequence, Walk, walks_of


def check_graph(nodes: tuple[Node, ...], edges: tuple[Edge, ...], graph: Sequence) -> None:
    """Raise ConfigError for a walk, node or edge that the graph names and nobody declares."""
    walks = {w.name: w for node in nodes for w in node.walks}
    for name in walks_of(graph):
        if name not in walks:
            raise ConfigError(
                where="graph",
                got=Words(f"walk {name!r}"),
                want=f"one of {sorted(walks)}",
                fix="declare the walk on a node, or correct its name",
            )
    for walk in walks.values():
        if walk.combines or walk.feed == "rows":
            _check_combined(walk, walks)
        _check_told(walk)
        if walk.optional and (walk.feed not in ("prompt", "edge") or walk.samples):
            raise ConfigError(
                where=f"walk {walk.name}.optional",
                got=Words(f"a walk of feed {walk.feed!r}"),
                want="a walk that is fed from the prompt or an edge and does not sample",
                fix="leave optional out",
            )
    for each in edges:
        _check_chunks(each)
    named = {e.name for e in edges}
    for walk in walks.values():
        for edge in [walk.edge, *(o.edge for o in walk.outputs)]:
            if edge is not None and edge not in named:
                raise ConfigError(
                    where=f"walk {walk.name}",
                    got=Words(f"edge {edge!r}"),
                    want=f"one of {sorted(named)}",
                    fix="declare the edge on the model",
                )


def _check_chunks(edge: Edge) -> None:
    if not edge.chunks or not all(1 <= chunk <= edge.capacity for chunk in edge.chunks):
        raise ConfigError(
            where=f"edge {edge.name}.chunks",
            got=edge.chunks,
            want=f"numbers from 1 to its capacity, {edge.capacity}",
            fix="make the chunks smaller, or the capacity larger",
        )


def _check_told(walk: Walk) -> None:
    """Items that are told come out of a stream's consumer."""
    for output in walk.outputs:
        if output.told and (walk.feed != "edge" or not output.read):
            raise ConfigError(
                where=f"walk {walk.name}, output {output.name}",
                got=Words("items that are told"),
                want="an output that is read, of a walk that is fed from an edge",
                fix="set read, or leave told out",
            )
        if output.told and output.dtype == "bool":
            raise ConfigError(
                where=f"walk {walk.name}, output {output.name}",
                got="bool",
                want="a dtype of numbers, for items that are told",
                fix="tell uint8, 0 or 1",
            )


def _check_combined(walk: Walk, walks: dict[str, Walk]) -> None:
    """A combined walk is what each of its walks is, apart from where rows are fed from."""
    parts = [walks.get(name) for name in walk.combines]
    alike = all(
        part is not None
        and (part.node, part.inputs, part.outputs) == (walk.node, walk.inputs, walk.outputs)
        for part in parts
    )
    feeds = {part.feed for part in parts if part is not None}
    if walk.feed != "rows" or not alike or feeds != {"prompt", "loop"}:
        raise ConfigError(
            where=f"walk {walk.name}.combines",
            got=Words(f"{', '.join(walk.combines) or 'nothing'} (feed {walk.feed!r})"),
            want="walks of its node with its inputs and outputs, loops and those of prompts, "
            "and feed 'rows'",
            fix="declare these walks alike, or leave the combined walk out",
        )
