"""Whisper speech recognition on mstar-core. Importing this package imports no torch."""
