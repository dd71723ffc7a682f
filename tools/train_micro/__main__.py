"""``python -m tools.train_micro OUT``: train, check and write the checkpoint."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from attrs import asdict

from tools.train_micro import heldout
from tools.train_micro.evaluate import accuracy, sentences
from tools.train_micro.model import round_weights, save_model
from tools.train_micro.tokenizer import Encoder, make_tokenizer, save_tokenizer
from tools.train_micro.train import Settings, train

SLICE = 24
"""Instances of each task that travel with the checkpoint."""


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_micro", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to write")
    for name, value in asdict(Settings()).items():
        if name == "compiled":
            continue
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(value), default=value, help=f"default {value}")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--held-out", type=int, default=500, help="instances of each task")
    parser.add_argument("--only-held-out", action="store_true", help="write quality.jsonl.gz only")
    given = vars(parser.parse_args())
    out, num, only = given.pop("out"), given.pop("held_out"), given.pop("only_held_out")
    settings = Settings(compiled=not given.pop("eager"), **given)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    encoder = Encoder(tokenizer)
    if only:
        heldout.write(out / "quality.jsonl.gz", encoder, num)
        return
    save_tokenizer(tokenizer, out)
    heldout.write(out / "quality.jsonl.gz", encoder, min(num, SLICE))
    begin = time.perf_counter()
    model = train(settings, tokenizer)
    round_weights(model)
    save_model(model, out, (encoder.end, encoder.end_of_text))
    trained_s = time.perf_counter() - begin
    parsed, wrong = sentences(model, encoder, tokenizer, 100)
    found = accuracy(model, encoder, list(heldout.instances(encoder, num)))
    report = {"seconds": round(trained_s, 1), "accuracy": found, "parsed of 100": parsed}
    print(json.dumps(report, indent=1))
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
