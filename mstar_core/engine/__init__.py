"""The engine: warmup, the life of a step, capture, and the program's way in."""

from mstar_core.engine.engine import Engine
from mstar_core.engine.events import EngineEvent, FinishEvent, ItemsEvent, Result, TokenEvent

__all__ = ["Engine", "EngineEvent", "FinishEvent", "ItemsEvent", "Result", "TokenEvent"]
