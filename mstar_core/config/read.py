"""YAML text to Located values, with line numbers and no surprises.

Only ``true`` and ``false`` are truth values (as in YAML 1.2): ``resident: off`` is the word *off*
and ``require: yes`` is told to be ``true``. Octal, base-60 and date spellings stay text; a key that
is given twice, a tab as indentation, an empty file and a second document are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import yaml

from mstar_core.config.findings import raise_all
from mstar_core.config.located import Located, Origin
from mstar_core.errors import ConfigError, Words

PlaceOf = Callable[[int], Origin]
"""Line number, from 1, to the origin of what stands there."""


class _PlainLoader(yaml.SafeLoader):
    """A SafeLoader that resolves the scalars of YAML 1.2's core schema and no others."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_SCALARS = (
    ("null", r"|~|null|Null|NULL", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]{1,18}|0x[0-9a-fA-F]{1,15}", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)
for _tag, _pattern, _first in _SCALARS:
    _PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first
    )

_TAG = "tag:yaml.org,2002:"


def read_yaml(text: str, name: str, place_of: PlaceOf | None = None) -> Located:
    """Read one YAML document. ``name`` stands in each place as ``name:line``.

    Raises ConfigError for text that is no YAML, and ConfigErrors for several duplicate keys.
    """
    place_of = place_of or (lambda line: Origin("file", f"{name}:{line}"))
    errors: list[ConfigError] = []
    try:
        node = yaml.compose(text, Loader=_PlainLoader)
        located = None if node is None else _Walk(place_of, errors).located(node, node, ())
    except RecursionError:
        raise ConfigError(
            where=name,
            got=Words("lists or mappings inside each other without end"),
            want="a mapping of sections, a few levels deep",
            fix="close the brackets that were opened",
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, place_of) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            where=name,
            got=Words(" ".join(str(error).split())),
            want="YAML text in UTF-8",
            fix="remove the characters that are not text",
        ) from error
    raise_all(errors, name)
    return Located(None, place_of(1), "") if located is None else located


def _syntax_error(error: yaml.MarkedYAMLError, text: str, place_of: PlaceOf) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    written = lines[line - 1] if line <= len(lines) else ""
    where = place_of(line).where("")
    if "\t" in written[: len(written) - len(written.lstrip())] or "'\\t'" in (error.problem or ""):
        return ConfigError(
            where=where,
            got=written,
            want="spaces as indentation; YAML has no tabs there",
            fix="replace each tab with two spaces",
        )
    return ConfigError(
        where=where,
        got=Words(f"{written.strip()!r}: {error.problem or error.context}"),
        want="a YAML mapping of sections",
        fix="mend the syntax at this line or the one above it",
    )


class _Walk:
    """Turns composed YAML nodes into Located values and collects what is wrong."""

    def __init__(self, place_of: PlaceOf, errors: list[ConfigError]) -> None:
        self.place_of = place_of
        self.errors = errors

    def located(self, node: yaml.Node, at: yaml.Node, inside: tuple[yaml.Node, ...]) -> Located:
        """``at`` is the node whose line counts: the key for a value of a mapping."""
        origin = self.place_of(at.start_mark.line + 1)
        if node in inside:
            return self.refuse(origin, "an alias inside what it names", "a tree", "write it out")
        inside = (*inside, node)
        if isinstance(node, yaml.MappingNode):
            return Located(self.mapping(node, inside), origin)
        if isinstance(node, yaml.SequenceNode):
            return Located([self.located(item, item, inside) for item in node.value], origin)
        return self.scalar(node, origin)

    def mapping(self, node: yaml.MappingNode, inside: tuple[yaml.Node, ...]) -> dict[str, Located]:
        out: dict[str, Located] = {}
        for key_node, value_node in node.value:
            origin = self.place_of(key_node.start_mark.line + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                self.refuse(origin, "a list or mapping as a key", "a word as key", "write a word")
                continue
            key = key_node.value
            if key in out:
                first = out[key].origin.detail
                self.refuse(
                    origin, f"{key}, which {first} gives too", "each key once", "keep one of them"
                )
                continue
            out[key] = self.located(value_node, key_node, inside)
        return out

    def scalar(self, node: yaml.Node, origin: Origin) -> Located:
        tag, text = node.tag, node.value
        match tag.removeprefix(_TAG):
            case "null":
                value: object = None
            case "bool":
                value = text.lower() == "true"
            case "int":
                value = int(text, 16) if text.lower().startswith("0x") else int(text)
            case "float":
                value = float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
            case "str":
                value = text
            case _:
                return self.refuse(
                    origin, f"the tag {tag}", "plain values without tags", "remove the tag"
                )
        return Located(value, origin, text)

    def refuse(self, origin: Origin, got: str, want: str, fix: str) -> Located:
        self.errors.append(ConfigError(where=origin.where(""), got=Words(got), want=want, fix=fix))
        return Located(None, origin)
