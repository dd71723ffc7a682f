"""What clients send and what they get, as types; every field has its bounds."""
