"""Sound from strangers: decoded within bounds in another process, fetched only where allowed."""
