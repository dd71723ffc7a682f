"""The HTTP server: a supervisor, API processes, and one engine process (docs/serving.md)."""
