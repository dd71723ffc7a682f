"""The contract of a model as tests: greedy tokens do not depend on how the steps are made.

::

    class TestTinyKeepsTheContract(ModelContract):
        config = "tiny"

        def requests(self, front):
            return [front.text_request(text, max_new_tokens=8) for text in ("a", "bcd", "e" * 40)]
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from mstar_core.engine.device import CpuDevice, Lag
from mstar_core.engine.opening import load_wiring, open_core, resolve_config
from mstar_core.engine.wire import wire
from mstar_core.model.checkpoint import open_checkpoint
from mstar_core.model.front import Front, Request
from mstar_core.model.weights import plan_weights
from mstar_core.testing.contracts.opened import Opened, finished, tokens
from mstar_core.testing.hooks import hooks_watched

EAGER = "engine.graphs=off"
RECORDED = ("engine.graphs=recorder", "engine.capture.rows=[1, 4]")
every_way = pytest.mark.parametrize("way", [(EAGER,), RECORDED], ids=["eager", "recorded"])


class ModelContract:
    """Subclass it with ``config`` and ``requests``, and ``oracle`` where there is one."""

    config: ClassVar[str | Path]
    """A file, or the name of a config that the plugin ships."""
    sets: ClassVar[tuple[str, ...]] = ("device=cpu", "model.dtype=fp32")
    """``--set`` texts for every engine of the contract."""
    captures: ClassVar[bool] = True
    """Every bucket is captured; False for a model that refuses some."""
    poisoned: ClassVar[tuple[str, ...]] = ("kv", "state")
    """Kinds of resources whose memory nobody may read before it was written."""

    @abstractmethod
    def requests(self, front: Front) -> Sequence[Request]:
        """At least three greedy requests of different lengths; the same ones at every call."""

    def oracle(self, request: Request) -> list[int] | None:
        """The tokens that must come of ``request``, or None where nothing outside knows them."""
        return None

    def open(self, folder: Path, *sets: str, lag: Lag | None = None) -> Opened:
        """A warmed core over the model, on a CPU that may complete late; ``folder`` is empty."""
        small = ("engine.max_rows=4", "engine.token_budget=64")
        given = (*small, *self.sets, *sets)
        core, wired, report = open_core(self.config, given, device=CpuDevice(lag), offline=True)
        return Opened(core=core, wired=wired, report=report)

    @pytest.fixture(scope="class")
    @classmethod
    def alone(cls, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
        """The tokens of each request run alone, eagerly, one step at a time."""
        folder, kit = tmp_path_factory.mktemp("alone"), cls()
        opened = kit.open(folder, EAGER, "engine.in_flight=0", "engine.max_rows=1")
        return [tokens([r], opened)[0] for r in kit.requests(opened.front)]

    def test_the_requests_can_tell_a_mistake(self, alone: list[list[int]]) -> None:
        assert len(alone) >= 3, "the contract needs at least three requests"
        assert all(alone), "a request that yields no token shows nothing"
        starts = {tuple(ids[: min(map(len, alone))]) for ids in alone}
        assert len(starts) > 1, "all answers begin alike: nothing would show"

    def test_the_oracle_agrees(self, alone: list[list[int]], tmp_path: Path) -> None:
        for request, ids in zip(self._given(tmp_path), alone, strict=True):
            want = self.oracle(request)
            if want is None:
                pytest.skip("the suite gives no oracle")
            assert ids == want

    def test_company_changes_no_token(self, alone: list[list[int]], tmp_path: Path) -> None:
        assert self._together(tmp_path, EAGER) == alone

    def test_a_recorded_step_is_the_eager_one(self, alone: list[list[int]], tmp_path: Path) -> None:
        opened = self.open(tmp_path, *RECORDED)
        assert tokens(self.requests(opened.front), opened) == alone
        dropped = [b for n in opened.report.nodes for b in n.buckets if not b.captured]
        assert not (self.captures and dropped), f"not captured: {dropped}"
        if self.captures:
            assert opened.core.stats()["replayed"] > 0, "no step was replayed"

    @every_way
    @pytest.mark.parametrize("budget", [7, 16, 64])
    def test_chunks_change_no_token(
        self, alone: list[list[int]], tmp_path: Path, budget: int, way: tuple[str, ...]
    ) -> None:
        sets = (f"engine.token_budget={budget}", "engine.min_chunk=1")
        assert self._together(tmp_path, *sets, *way) == alone

    @every_way
    @pytest.mark.parametrize("budget", [7, 64])
    def test_mixed_steps_change_no_token(
        self, alone: list[list[int]], tmp_path: Path, budget: int, way: tuple[str, ...]
    ) -> None:
        sets = ("engine.mixed=on", f"engine.token_budget={budget}", "engine.min_chunk=1")
        assert self._together(tmp_path, *sets, *way) == alone

    @pytest.mark.parametrize("in_flight", [0, 1, 2, 3])
    @pytest.mark.parametrize("lag", [Lag(), Lag(seed=5)], ids=["late", "sometimes-late"])
    def test_steps_in_flight_change_no_token(
        self, alone: list[list[int]], tmp_path: Path, in_flight: int, lag: Lag
    ) -> None:
        sets = (f"engine.in_flight={in_flight}", *RECORDED)
        assert self._together(tmp_path, *sets, lag=lag) == alone

    def test_what_a_request_gave_back_shows_nothing_to_the_next(
        self, alone: list[list[int]], tmp_path: Path
    ) -> None:
        opened = self.open(tmp_path, EAGER, "engine.max_rows=1")
        for order in (1, -1):
            again = self.requests(opened.front)[::order]
            assert tokens(again, opened) == alone[::order]

    @every_way
    @pytest.mark.parametrize("fill", [float("nan"), 1e3], ids=str)
    def test_memory_that_nobody_wrote_is_not_read(
        self, alone: list[list[int]], tmp_path: Path, fill: float, way: tuple[str, ...]
    ) -> None:
        opened = self.open(tmp_path, *way)
        self.poison(opened, fill)
        assert tokens(self.requests(opened.front), opened) == alone

    def test_an_abort_leaves_nothing_behind(self, alone: list[list[int]], tmp_path: Path) -> None:
        opened = self.open(tmp_path, EAGER, "engine.in_flight=2")
        for turns in range(5):
            given = self.requests(opened.front)
            for request in given:
                opened.core.submit(request)
            for _ in range(turns):
                opened.core.turn()
            for request in given[::2]:
                opened.core.abort(request.id)
            found = finished(opened)
            assert [found[r.id] for r in given[1::2]] == alone[1::2]

    @every_way
    def test_no_hook_is_asked_in_a_step(self, tmp_path: Path, way: tuple[str, ...]) -> None:
        opened = self.open(tmp_path, *way)
        with hooks_watched() as asked:
            tokens(self.requests(opened.front), opened)
        assert not asked, f"asked during a step: {', '.join(asked)}"

    def test_the_name_map_uses_the_checkpoint_up(self, tmp_path: Path) -> None:
        """Every parameter has its tensor, every tensor its parameter or its place set aside."""
        resolved = resolve_config(self.config, self.sets)
        if resolved.config.model.load == "random":
            pytest.skip("this configuration reads no checkpoint")
        made = wire(
            resolved, load_wiring(resolved), torch.device("meta"), target="cpu", offline=True
        )
        if not made.model.has_checkpoint:
            pytest.skip("this model has no checkpoint")
        checkpoint = open_checkpoint(made.folder, made.model.weight_folders)
        modules = {name: node.submodule for name, node in made.nodes.items()}
        maps = {name: made.model.weight_map(name) for name in modules}
        plan_weights(modules, maps, checkpoint.shapes, where=str(made.folder))

    def test_the_front_answers(self, alone: list[list[int]], tmp_path: Path) -> None:
        front = self.open(tmp_path, EAGER).front
        assert front.capabilities(), "text, chat or audio: a front answers one of them"
        assert all(isinstance(front.decode(ids), str) for ids in alone)
        assert front.decode([]) == ""

    # Parts

    def poison(self, opened: Opened, fill: float) -> None:
        """Fill the memory of every poisoned resource; integers with the largest there is."""
        for name, node in opened.wired.nodes.items():
            for key, resource in node.resources.items():
                if resource.kind in self.poisoned:
                    for buffer in opened.wired.buffers.of(f"{name}.{key}").values():
                        floating = buffer.is_floating_point()
                        buffer.fill_(fill if floating else torch.iinfo(buffer.dtype).max)

    def _given(self, folder: Path) -> Iterator[Request]:
        yield from self.requests(self.open(folder, EAGER).front)

    def _together(self, folder: Path, *sets: str, lag: Lag | None = None) -> list[list[int]]:
        opened = self.open(folder, *sets, lag=lag)
        return tokens(self.requests(opened.front), opened)
