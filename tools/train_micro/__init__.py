"""Everything that made the checkpoint ``mstar_qwen35/micro``: corpus, tokenizer, training, check.

Run from the root of the repository: ``python -m tools.train_micro --help``.
"""
