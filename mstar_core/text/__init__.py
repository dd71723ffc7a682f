"""Token ids to text as it is generated: whole characters, stop strings, stop ids. Free of torch."""

from mstar_core.text.detokenize import Decode, Detokenizer
from mstar_core.text.stop import StopStrings
from mstar_core.text.stream import FinishReason, TextDelta, TextStream

__all__ = ["Decode", "Detokenizer", "FinishReason", "StopStrings", "TextDelta", "TextStream"]
