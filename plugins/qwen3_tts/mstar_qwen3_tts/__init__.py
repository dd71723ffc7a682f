"""Qwen3-TTS for mstar-core: a talker that decodes frames of codes, a codec that makes sound."""
