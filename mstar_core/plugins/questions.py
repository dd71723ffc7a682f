"""The questions an engine asks about its nodes, each with the checks on what comes back.

Every question has two faces: objects answer through plain methods, any active plugin through the
hook of the same name. Each is asked once, at the moment its docstring names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mstar_core.errors import ConfigError, Refusal, Words
from mstar_core.names import suggest
from mstar_core.plugins.ask import A_LIST, ask_all, no_answer
from mstar_core.plugins.faces import (
    SaysCaptureRefusal,
    SaysCombinedSplits,
    SaysResidentRefusal,
    SaysResidentWalks,
    capture_refusal_faces,
    combined_split_faces,
    resident_refusal_faces,
    resident_walk_faces,
)

if TYPE_CHECKING:
    from mstar_core.plugins.wiring import Wiring
    from mstar_core.step.bucket import Bucket
    from mstar_core.step.split import CombinedSplit


def collect_resident_walks(
    wiring: Wiring,
    node: str,
    submodule: SaysResidentWalks,
    resources: Mapping[str, SaysResidentRefusal],
    walks: Collection[str],
) -> tuple[frozenset[str], tuple[Refusal, ...]]:
    """The walks of ``node`` that run off device tables, and every reason why others do not.

    Asked at warmup, before the planner is built. A walk is wanted if the submodule or any plugin
    names it, and vetoed if any of ``resources`` refuses it: it is then planned on the host.
    Raises ConfigError for a walk that is none of ``walks``, naming the nearest.
    """
    asked = wiring.ask("resident_walks", faces=resident_walk_faces(node, submodule), node=node)
    for answer in asked.answers:
        for walk in answer.value or ():
            _known(f"node {node}: resident_walks of {answer.plugin}", str(walk), walks)
    refusals = list(asked.findings)
    resident = set()
    for walk in sorted(set(asked.value)):
        faces = resident_refusal_faces(resources, walk)
        vetoes = ask_all("resident_refusal", "any_refuses", faces).refusals
        refusals.extend(vetoes)
        if not vetoes:
            resident.add(walk)
    return frozenset(resident), tuple(refusals)


def collect_combined_splits(
    wiring: Wiring,
    node: str,
    resources: Mapping[str, SaysCombinedSplits],
    combined: Mapping[str, Collection[str]],
) -> tuple[dict[str, CombinedSplit], tuple[Refusal, ...]]:
    """Combined walk → its split, for those that all who answer agree about, and the refusals.

    Asked while loading, before buffers are sized. ``combined`` maps each combined walk of ``node``
    to those of its walks that bring several tokens a row; a split must name all of them among its
    ``prefill_walks``. Raises ConfigError for a combined walk that the node does not have.
    """
    asked = wiring.ask("combined_splits", faces=combined_split_faces(resources), node=node)
    refusals = list(asked.findings)
    claims: dict[str, list[tuple[str, CombinedSplit]]] = {}
    for answer in asked.answers:
        if not isinstance(answer.value, tuple | None):
            refusals.append(no_answer("combined_splits", answer.plugin, answer.value, A_LIST))
            continue
        for split in answer.value or ():
            where = f"node {node}: combined_splits of {answer.plugin}"
            _known(where, str(getattr(split, "walk", split)), combined)
            claims.setdefault(split.walk, []).append((answer.plugin, split))
    splits: dict[str, CombinedSplit] = {}
    for walk, claimed in sorted(claims.items()):
        refused = _disagreement(node, walk, claimed) or _misses(node, claimed[0], combined[walk])
        if refused is None:
            splits[walk] = claimed[0][1]
        else:
            refusals.append(refused)
    return splits, tuple(refusals)


def collect_capture_refusals(
    wiring: Wiring,
    node: str,
    bucket: Bucket,
    resources: Mapping[str, SaysCaptureRefusal],
    backends: Mapping[str, SaysCaptureRefusal],
) -> tuple[Refusal, ...]:
    """Every objection to capturing ``bucket``; none means that it may be captured.

    Asked before each capture. Who fails to answer objects. ``backends`` are those the node's
    resources were bound to, by any name that a report should show.
    """
    faces = capture_refusal_faces(bucket, resources, backends)
    return wiring.ask("capture_refusal", faces=faces, node=node, bucket=bucket).refusals


def _known(where: str, walk: str, walks: Collection[str]) -> None:
    if walk not in walks:
        want = f"one of: {', '.join(sorted(walks))}" if walks else "a node with such walks"
        raise ConfigError(where=where, got=walk, want=want, fix=suggest(walk, walks))


def _disagreement(
    node: str, walk: str, claimed: Sequence[tuple[str, CombinedSplit]]
) -> Refusal | None:
    first, split = claimed[0]
    for other, rival in claimed[1:]:
        if rival != split:
            return Refusal(
                code="splits-disagree",
                where=f"node {node}, combined walk {walk}",
                got=f"{first} splits it as {_spelled(split)}, {other} as {_spelled(rival)}",
                want="one split that all agree about",
                fix=f"make {first} and {other} return the same split, or only one of them",
                owner=f"{first}, {other}",
            )
    return None


def _misses(
    node: str, claim: tuple[str, CombinedSplit], several_tokens: Collection[str]
) -> Refusal | None:
    owner, split = claim
    missed = sorted(set(several_tokens) - set(split.prefill_walks))
    if not missed:
        return None
    return Refusal(
        code="split-misses-walk",
        where=f"node {node}, combined walk {split.walk}",
        got=f"{_spelled(split)}, without {', '.join(missed)}",
        want="every walk of several tokens a row among its prefill walks",
        fix=f"add {', '.join(missed)} to the prefill walks of {owner}'s split",
        owner=owner,
    )


def _spelled(split: CombinedSplit) -> Words:
    decode, prefill = "+".join(split.decode_walks), "+".join(split.prefill_walks)
    return Words(f"{decode} | {prefill} (at most {split.max_decode_rows} decode rows)")
