"""Loaded by pytest wherever the core is installed; it imports only what pytest itself imports."""
