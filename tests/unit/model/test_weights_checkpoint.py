"""Checkpoint folders: whole, sharded, and everything that can be wrong with them."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from mstar_core.errors import CheckpointError
from mstar_core.model.checkpoint import INDEX, open_checkpoint

A = torch.arange(12, dtype=torch.float32).view(4, 3)
B = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)


@pytest.fixture
def sharded(tmp_path):
    """Two shards with their index."""
    save_file({"a": A}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": B, "c": A}, tmp_path / "model-00002-of-00002.safetensors")
    placed = {"a": 1, "b": 2, "c": 2}
    names = {name: f"model-0000{n}-of-00002.safetensors" for name, n in placed.items()}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": names}))
    return tmp_path


def refused(folder):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    return caught.value


@pytest.mark.parametrize(
    "tensor",
    [
        A,
        B,
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.arange(5, dtype=torch.int64),
        torch.tensor([True, False]),
        torch.randn(2, 3, 4).half(),
        torch.randn(3, 2).double(),
        torch.tensor([1, 255], dtype=torch.uint8),
    ],
)
def test_tensors_are_read_as_they_were_saved(tmp_path, tensor):
    save_file({"other": A + 1, "x": tensor}, tmp_path / "model.safetensors", {"format": "pt"})
    checkpoint = open_checkpoint(tmp_path)
    stored = checkpoint.tensors["x"]
    read = checkpoint.rows("x", 0, stored.num_rows).view(stored.shape)
    assert stored.shape == tuple(tensor.shape)
    assert read.dtype == tensor.dtype
    assert torch.equal(read, tensor)


def test_a_range_of_rows_is_read_alone(sharded):
    assert torch.equal(open_checkpoint(sharded).rows("c", 1, 3), A[1:3])


def test_shards_are_found_by_their_index_and_without_one_by_their_names(sharded):
    by_index = open_checkpoint(sharded)
    assert by_index.shapes == {"a": (4, 3), "b": (2,), "c": (4, 3)}
    assert by_index.dtypes["b"] == "BF16"
    (sharded / INDEX).unlink()
    assert open_checkpoint(sharded).shapes == by_index.shapes


def test_a_single_file_is_taken_before_shards_of_another_copy(sharded):
    save_file({"only": B}, sharded / "model.safetensors")
    assert set(open_checkpoint(sharded).tensors) == {"only"}


def test_a_missing_shard_is_named(sharded):
    """W-01 (a), W-03: the index names a shard that is not there."""
    (sharded / "model-00002-of-00002.safetensors").unlink()
    error = refused(sharded)
    assert error.where.endswith(INDEX)
    assert "model-00002-of-00002.safetensors" in str(error.got)
    assert "the index is stale" in error.fix


def test_an_empty_folder_is_refused(tmp_path):
    """W-01 (b)."""
    assert refused(tmp_path).got == "no weights"


def test_a_folder_of_another_format_says_so(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert "pytorch_model.bin" in refused(tmp_path).got


def test_a_folder_that_is_named_like_a_file_is_refused(tmp_path):
    """W-01 (c)."""
    (tmp_path / "x.safetensors").mkdir()
    error = refused(tmp_path)
    assert (error.where, error.got) == (str(tmp_path / "x.safetensors"), "a folder")


def test_a_tensor_that_left_its_shard_is_named(sharded):
    """W-01 (d): the index entry is kept, the tensor is gone."""
    save_file({"c": A}, sharded / "model-00002-of-00002.safetensors")
    assert "b is not in model-00002-of-00002.safetensors" in refused(sharded).got


def test_a_tensor_that_the_index_does_not_name_is_named(sharded):
    """W-03: a stale index."""
    save_file({"a": A, "new": A + 1}, sharded / "model-00001-of-00002.safetensors")
    assert "new is not in the index" in refused(sharded).got


def test_a_tensor_in_two_files_names_both(sharded):
    (sharded / INDEX).unlink()
    save_file({"a": A}, sharded / "other.safetensors")
    got = refused(sharded).got
    assert "a is in model-00001-of-00002.safetensors and in other.safetensors" in got


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}', "{}", ""])
def test_an_index_that_is_none_is_refused(sharded, text):
    (sharded / INDEX).write_text(text)
    assert "no index of tensors" in refused(sharded).got


def test_a_git_lfs_pointer_is_recognised(tmp_path):
    """W-05 (a)."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 99\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    error = refused(tmp_path)
    assert error.where.endswith("model.safetensors")
    assert "Git LFS pointer" in error.got
    assert str(len(pointer)) in error.got


def test_a_file_that_was_cut_in_half_says_how_many_bytes_are_there(tmp_path):
    """W-05 (b)."""
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(1000)}, file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    header = int.from_bytes(whole[:8], "little")
    num_left = len(whole) // 2 - 8 - header
    assert refused(tmp_path).got == (
        f"truncated: header wants 4000 bytes of tensors, file has {num_left}"
    )
    file.write_bytes(whole[:20])
    assert refused(tmp_path).got == f"truncated: header wants {header} bytes, file has 12 after 8"


@pytest.mark.parametrize(
    "data", [b"", b"abc", bytes([231, 3, 99, 1, 5, 77, 200, 9]), b"<html>not found</html>"]
)
def test_bytes_that_are_no_safetensors_are_refused_by_name(tmp_path, data):
    """W-05 (c)."""
    (tmp_path / "model.safetensors").write_bytes(data)
    assert "do not begin with a safetensors header" in refused(tmp_path).got


def with_header(folder, header, num_data=0):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    data = len(text).to_bytes(8, "little") + text + bytes(num_data)
    (folder / "model.safetensors").write_bytes(data)


@pytest.mark.parametrize(
    ("header", "num_data", "said"),
    [
        (b"{nonsense", 0, "a damaged header"),
        ([], 0, "a damaged header"),
        ({"a": 3}, 0, "a damaged header"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "a damaged header"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, 8, "of shape [-2]"),
        ({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, 1, "a of dtype F4"),
        (
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
            4,
            "a damaged header: a at",
        ),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12, "bytes 4 to 12"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 9, "1 bytes after"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            12,
            "b at bytes 4 to 12",
        ),
    ],
)
def test_a_damaged_header_is_refused_by_name(tmp_path, header, num_data, said):
    with_header(tmp_path, header, num_data)
    error = refused(tmp_path)
    assert said in error.got
    assert error.where.endswith("model.safetensors")


def test_a_file_that_shrinks_after_it_was_checked_is_named(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file({"a": A}, file)
    checkpoint = open_checkpoint(tmp_path)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="44 of 48 bytes of a"):
        checkpoint.rows("a", 0, 4)


def test_headers_are_read_without_torch(sharded):
    code = (
        "import sys, pathlib; from mstar_core.model.checkpoint import open_checkpoint;"
        f"open_checkpoint(pathlib.Path({str(sharded)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_folders_inside_belong_to_the_checkpoint_where_they_are_named(tmp_path):
    (tmp_path / "codec").mkdir()
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "codec" / "model.safetensors")
    assert open_checkpoint(tmp_path).shapes == {"a": (2,)}
    both = open_checkpoint(tmp_path, ("codec",))
    assert both.shapes == {"a": (2,), "b": (3,)}
    assert torch.equal(both.rows("b", 1, 3), torch.ones(2))
    save_file({"a": torch.ones(3)}, tmp_path / "codec" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"a is in model\.safetensors and in codec/model"):
        open_checkpoint(tmp_path, ("codec",))
