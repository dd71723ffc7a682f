"""Family 11: model repositories as a way in, and checks that ``python -O`` takes away.

CVE-2026-27893, CVE-2026-41523, CVE-2025-32434, CVE-2026-7482.
"""

import ast
import json
import struct

import pytest

from mstar_core.errors import CheckpointError
from mstar_core.model.safetensors_file import read_header

TRUST = "trust_remote_code"
WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".gguf")


def test_no_shipped_code_trusts_a_repositorys_code(shipped):
    found = [
        f"{path}:{node.lineno}"
        for path, tree in shipped.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.keyword) and node.arg == TRUST and not is_false(node.value))
        or (isinstance(node, ast.Constant) and node.value == TRUST)
    ]
    assert found == []


def is_false(node):
    return isinstance(node, ast.Constant) and node.value is False


def test_no_shipped_code_checks_by_assert(shipped):
    found = [
        f"{path}:{node.lineno}"
        for path, tree in shipped.items()
        if not path.startswith("mstar_core/testing/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_no_shipped_code_names_a_format_of_weights_that_can_hold_code(shipped):
    found = [
        f"{path}:{node.lineno} {node.value}"
        for path, tree in shipped.items()
        if not path.startswith("mstar_core/testing/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.endswith(WEIGHTS)
        and " " not in node.value
    ]
    # one place looks for them, to say that they are not read
    assert [one.partition(":")[0] for one in found] == ["mstar_core/model/checkpoint.py"]


def written(path, header, num_bytes=8, size=None):
    """A safetensors file of one header and so many bytes of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text) if size is None else size) + text + b"0" * num_bytes
    )
    return path


def tensor(begin=0, end=8, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


BAD = {
    "an offset behind the file": {"a": tensor(0, 80, (20,))},
    "an offset before the data": {"a": tensor(-8, 0)},
    "a shape that overflows": {"a": tensor(0, 8, (1 << 62, 4))},
    "a negative shape": {"a": tensor(0, 8, (-2,))},
    "fewer bytes than the shape": {"a": tensor(0, 4)},
    "two tensors over each other": {"a": tensor(), "b": tensor(4, 8, (1,))},
    "no JSON": b"{",
    "another kind of JSON": b"[1]",
}


@pytest.mark.parametrize("what", BAD)
def test_a_header_that_lies_is_refused_before_memory_is_taken(tmp_path, what):
    with pytest.raises(CheckpointError):
        read_header(written(tmp_path / "a.safetensors", BAD[what]))


@pytest.mark.parametrize("size", [1 << 20, 1 << 40, (1 << 64) - 1, 0])
def test_a_header_whose_length_lies_is_refused(tmp_path, size):
    with pytest.raises(CheckpointError):
        read_header(written(tmp_path / "a.safetensors", {"a": tensor()}, size=size))
