"""The gated delta rule: two kernels for a token of each row, four for prompts."""
