"""Checkpoints by folder and by hub id, from a cache made here; the network is never needed."""

import os
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file

from mstar_core.errors import CheckpointError
from mstar_core.model.hub import resolve_checkpoint
from mstar_core.model.safetensors_file import read_header

SHA = "a" * 40


@pytest.fixture
def cache(tmp_path):
    """A hub cache that holds org/tiny at main."""
    root = tmp_path / "hub" / "models--org--tiny"
    snapshot = root / "snapshots" / SHA
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(SHA)
    (snapshot / "config.json").write_text("{}")
    save_file({"a": torch.zeros(1)}, snapshot / "model.safetensors")
    return tmp_path / "hub"


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def test_a_folder_is_used_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert resolve_checkpoint(str(tmp_path)) == tmp_path


def test_a_folder_that_is_no_checkpoint_says_what_is_missing(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"without config\.json; it has notes\.txt"):
        resolve_checkpoint(str(tmp_path))
    (tmp_path / "notes.txt").unlink()
    with pytest.raises(CheckpointError, match="it is empty"):
        resolve_checkpoint(str(tmp_path))


def test_a_path_that_cannot_be_looked_at_says_why(tmp_path):
    path = str(tmp_path / (300 * "x"))
    with pytest.raises(CheckpointError, match="File name too long") as caught:
        resolve_checkpoint(path)
    assert (caught.value.where, caught.value.fix) == (path, "check the path and its permissions")


def test_a_folder_and_a_file_that_may_not_be_read_say_so(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with without_rights(tmp_path / "model.safetensors"):
        with pytest.raises(CheckpointError, match="Permission denied") as caught:
            read_header(tmp_path / "model.safetensors")
        assert caught.value.where == str(tmp_path / "model.safetensors")
    with without_rights(tmp_path), pytest.raises(CheckpointError, match="Permission denied"):
        resolve_checkpoint(str(tmp_path))


@contextmanager
def without_rights(path):
    """Nobody may read ``path``, nor does this process as a superuser meanwhile."""
    mode, user = path.stat().st_mode, os.geteuid()
    path.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.chmod(mode)


def test_a_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_text("x")
    with pytest.raises(CheckpointError, match="a file") as caught:
        resolve_checkpoint(str(tmp_path / "model.safetensors"))
    assert caught.value.fix == "name the folder it is in"


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./weights", "a/b/c", "../x", "org/../x"])
def test_a_path_that_is_not_there_never_asks_the_hub(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        resolve_checkpoint(path)


def test_the_cache_answers_first(cache):
    assert resolve_checkpoint("org/tiny", cache=cache).name == SHA
    assert resolve_checkpoint("org/tiny", SHA, offline=True, cache=cache).name == SHA


@pytest.mark.parametrize(("name", "revision"), [("org/other", None), ("org/tiny", "v2")])
def test_offline_a_model_that_is_not_cached_says_so(cache, name, revision):
    with pytest.raises(CheckpointError) as caught:
        resolve_checkpoint(name, revision, offline=True, cache=cache)
    assert "not a folder, and not found in the hub cache" in caught.value.got
    assert "--offline was given" in caught.value.got


def test_offline_a_model_whose_inner_folder_is_not_cached_says_so(cache):
    with pytest.raises(CheckpointError, match=r"incomplete in the hub cache \(no weights\)"):
        resolve_checkpoint("org/tiny", offline=True, cache=cache, inner=("codec",))
    inner = cache / "models--org--tiny" / "snapshots" / SHA / "codec"
    inner.mkdir()
    save_file({"b": torch.zeros(1)}, inner / "model.safetensors")
    assert resolve_checkpoint("org/tiny", offline=True, cache=cache, inner=("codec",)).name == SHA


def test_offline_a_model_that_is_half_cached_says_what_is_missing(cache):
    (cache / "models--org--tiny" / "snapshots" / SHA / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"incomplete in the hub cache \(no weights\)"):
        resolve_checkpoint("org/tiny", offline=True, cache=cache)


def test_a_hub_that_does_not_answer_is_told_with_the_id(cache):
    told = []
    with pytest.raises(CheckpointError, match="the hub answered") as caught:
        resolve_checkpoint("org/other", cache=cache, progress=told.append)
    assert caught.value.where == "org/other"
    assert told == [
        "org/other is not a folder, and not found in the hub cache: downloading it from the hub"
    ]
