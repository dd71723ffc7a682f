"""The gated delta rule: one or two kernels for a token of each row, four for prompts."""
