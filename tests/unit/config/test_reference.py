"""docs/config.md is what the schema says."""

from pathlib import Path

from mstar_core.config.reference import config_reference
from mstar_core.config.resolve import SCHEMA_OWNERS

PAGE = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_is_what_the_schema_says():
    assert PAGE.read_text(encoding="utf-8") == config_reference()


def test_every_key_is_on_the_page_with_its_meaning():
    page = config_reference()
    for name in SCHEMA_OWNERS:
        (line, *_) = [row for row in page.splitlines() if row.startswith(f"| `{name}` ")]
        assert line.split("|")[-2].strip()
