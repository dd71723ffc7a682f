"""Choosing a token: what is likeliest in one pass, what is drawn without a sort."""
