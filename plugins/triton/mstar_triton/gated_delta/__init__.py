"""The gated delta rule: one kernel for a token of each row, four for prompts."""
