"""Operations: one folder each, with its contract, its reference and its torch backend."""
