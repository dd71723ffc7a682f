"""The engine in process, in a closed loop of greedy requests over random ids."""

from __future__ import annotations

import numpy as np
from attrs import frozen

from mstar_core.bench.closed_loop import ClosedLoop
from mstar_core.bench.resting import resting
from mstar_core.bench.stats import Figures, figures
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.model.front import Request


@frozen(kw_only=True)
class Shape:
    """What every request of a run is."""

    requests: int
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    vocab: int
    """Prompts are random ids below this."""
    seed: int = 0


def measure(engine: Engine, shape: Shape, promises: dict[str, float] | None = None) -> Figures:
    """Run the requests to their ends. Raises MstarError where the engine takes none any more."""
    requests = requests_of(engine, shape)
    with resting():
        heard = ClosedLoop(engine).run(requests, shape.concurrency)
    return figures([one.sample() for one in heard], promises)


def requests_of(engine: Engine, shape: Shape) -> list[Request]:
    """Greedy requests over random ids that go on to their limit, the same for the same seed.

    Raises RequestError for a model whose prompts are no ids, or ids or lengths that it refuses.
    """
    random = np.random.default_rng(shape.seed)
    return [
        engine.front.ids_request(
            random.integers(0, shape.vocab, shape.prompt_tokens).tolist(),
            max_new_tokens=shape.output_tokens,
            ignore_stop_ids=True,
            sampling=SamplingSettings(),
        )
        for _ in range(shape.requests)
    ]
