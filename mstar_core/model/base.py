"""The two classes of a model plugin that touch torch: :class:`Model` and :class:`NodeSubmodule`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as Listed
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from attrs import define, frozen
from torch import Tensor, nn

from mstar_core.errors import ConfigError, Words
from mstar_core.model.front import Front
from mstar_core.model.walks import Edge, Node, Sequence
from mstar_core.resources.base import Resource
from mstar_core.step import Plan

if TYPE_CHECKING:
    from mstar_core.model.weights import WeightMap


@frozen
class NoOptions:
    """The options of a model that has none."""


@define(kw_only=True, eq=False)
class NodeEnv:
    """What a submodule may use while it is built: its node's resources and backends."""

    node: str
    device: torch.device
    dtype: torch.dtype
    resources: Mapping[str, Resource]
    bind: Any = None
    """``bind(operation, geometry)``: a backend's record for an operation without a resource."""

    def resource(self, key: str) -> Any:
        """The node's resource ``key``. Raises ConfigError for a key the node does not declare."""
        if key not in self.resources:
            raise ConfigError(
                where=f"node {self.node}",
                got=Words(f"a layer that names resource {key!r}"),
                want=f"one of {sorted(self.resources)}",
                fix="declare the resource on the node, or correct the name in the layer",
            )
        return self.resources[key]


class NodeSubmodule(nn.Module, ABC):
    """The compute of one node: a forward over packed rows that reads its inputs and its plans.

    It never allocates per-request memory, captures, batches or synchronises.
    """

    def declare_step(self, walk: str, spans_B: np.ndarray) -> Mapping[str, np.ndarray] | None:
        """Per resource key the tokens that rows of ``spans_B`` items add; 0 reads only.

        None (the default): every resource of the node advances by the row's own span. A key that
        is absent takes no part in the walk.
        """
        return None

    @abstractmethod
    def forward(
        self, walk: str, inputs: Mapping[str, Tensor], plans: Mapping[str, Plan]
    ) -> dict[str, Tensor]:
        """Named inputs ``[items, *shape]`` and plans by resource key → the walk's named outputs."""

    def resident_walks(self) -> frozenset[str]:
        """Walks whose captured step may read device tables. None by default."""
        return frozenset()


class Model(ABC):
    """One model of a plugin: its configuration, nodes, walks, weights and front."""

    Options: ClassVar[type] = NoOptions
    """attrs class of ``model.options`` in a deployment's configuration."""
    has_checkpoint: ClassVar[bool] = True
    """False: the model has no files. ``model.path`` stays unset, ``open`` is given the folder of
    the configuration, and nothing fills its parameters."""
    weight_folders: ClassVar[tuple[str, ...]] = ()
    """Folders inside the checkpoint's that hold weights of the model too."""

    @classmethod
    @abstractmethod
    def open(cls, folder: Path, options: Any) -> Self:
        """Read the configuration files of a checkpoint folder; no weights, no device.

        Raises CheckpointError naming the file and the field.
        """

    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """The nodes with their resources and walks."""

    def edges(self) -> tuple[Edge, ...]:
        """The edges between walks."""
        return ()

    @abstractmethod
    def graph(self) -> Sequence:
        """The order in which a request takes its walks."""

    @property
    @abstractmethod
    def max_context(self) -> int:
        """Tokens of the longest stream that the model can hold."""

    @abstractmethod
    def default_dtype(self) -> torch.dtype:
        """The compute dtype for ``dtype: auto``."""

    @abstractmethod
    def build_submodule(self, node: str, env: NodeEnv) -> NodeSubmodule:
        """The submodule of ``node``, parameters on ``env.device`` (or meta), not yet filled."""

    @abstractmethod
    def weight_map(self, node: str) -> WeightMap:
        """Where each parameter of the node's submodule comes from in the checkpoint."""

    def run_again(
        self, arrays: Mapping[str, np.ndarray], tokens: Listed[int]
    ) -> Mapping[str, np.ndarray] | None:
        """The prompt ``arrays`` with the ``tokens`` that followed it as part of the prompt.

        Running it must leave a request where it was. None: that takes more than tokens, so under
        memory pressure such a request is only ever copied out.
        """
        return None

    @abstractmethod
    def front(self) -> Front:
        """The weight-free front; loads the tokenizer or feature extractor when called."""
