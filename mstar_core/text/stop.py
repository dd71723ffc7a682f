"""Stop strings over text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from mstar_core.errors import RequestError


class StopStrings:
    """Finds the first stop string and holds back no more than what may become one.

    Which one is first does not depend on how the text is cut: reading character by character, the
    stop that is complete first wins; of several that end at the same character, the longest, so
    that nothing of it is given out. Raises RequestError for a stop that is no text or empty.
    """

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        if isinstance(stops, str) or not all(isinstance(stop, str) and stop for stop in stops):
            raise RequestError(
                where="stop",
                got=stops,
                want="a list of texts, each at least one character long",
                fix="leave out the empty ones",
            )
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._held = ""
        self.hit: str | None = None
        """The stop string that was found."""

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that may be given out, and the stop that was hit. After a hit all is dropped."""
        if self.hit is not None:
            return "", self.hit
        text = self._held + text
        found = [(text.find(stop), stop) for stop in self._stops if stop in text]
        if found:
            start, self.hit = min(found, key=lambda at: (at[0] + len(at[1]), at[0]))
            self._held = ""
            return text[:start] + (self.hit if self._include_stop else ""), self.hit
        num_held = max((_open_end(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held], None

    def finish(self) -> str:
        """The text that is held and did not become a stop."""
        held, self._held = self._held, ""
        return held


def _open_end(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``, and not all of it."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
