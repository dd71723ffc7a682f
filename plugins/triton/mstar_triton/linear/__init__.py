"""Products of few rows: what limits them is reading the weight."""
