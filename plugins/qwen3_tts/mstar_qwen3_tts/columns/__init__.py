"""The operation ``codec_columns``: what the codec does to columns of packed rows."""
