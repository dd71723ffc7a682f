"""Measurements: what costs how much, with the machine, the commit and the command beside it."""
