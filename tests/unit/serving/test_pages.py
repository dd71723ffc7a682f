"""The pages about errors are what the server answers with."""

from mstar_core.serving.errors import CODES
from mstar_core.serving.reference import WHEN, errors_reference


def test_every_code_says_when_it_is_given():
    assert set(WHEN) == set(CODES)
    assert len(CODES) >= 20


def test_the_page_about_errors_is_what_the_codes_say(root):
    assert (root / "docs/errors.md").read_text(encoding="utf-8") == errors_reference()
