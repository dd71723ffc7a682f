"""Family 7: errors of one request that end the engine for all, and tensors from clients.

PYSEC-2026-4199, PYSEC-2026-2303, CVE-2026-56340, CVE-2025-62164.
"""

import asyncio
import base64

import pytest

from mstar_core.testing.asgi import call

TENSOR = base64.b64encode(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n").decode()
BROKEN = ("request_failed", "internal_error")
FAULTS = ["!raise", "!raise@1", "!nan", "!nan@1", "!hear", "!voice", "!front"]


@pytest.mark.parametrize("order", FAULTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_breaks_the_model_breaks_alone(rig, order, stream):
    server = rig()
    body = {"prompt": f"{order} and so on", "max_tokens": 64, "stream": stream}
    told = server.ask("/v1/completions", body)
    if told.status == 200:
        assert b'"error"' in told.body
        assert b"[DONE]" not in told.body
    else:
        assert (told.status, told.json()["error"]["code"] in BROKEN) == (500, True)
    assert b"Traceback" not in told.body
    server.check_good()


def test_its_neighbours_are_answered(rig):
    server = rig()
    prompts = ["one", "two", "!raise@2 three", "four", "!nan@1 five", "six", "seven", "eight"]

    async def run():
        bodies = [b'{"prompt": "%s", "max_tokens": 64}' % p.encode() for p in prompts]
        return await asyncio.gather(*(call(server.app, "/v1/completions", body) for body in bodies))

    told = asyncio.run(run())
    for prompt, answer in zip(prompts, told, strict=True):
        if "!" in prompt:
            assert answer.status == 500
        else:
            assert answer.json()["choices"][0]["text"] == prompt
    server.check_good()


@pytest.mark.parametrize("field", ["prompt_embeds", "prompt_embeddings", "inputs_embeds"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_tensors_are_not_taken(rig, path, body, field):
    server = rig(server={"strict": True})
    status, code = server.code(path, {**body, field: TENSOR})
    assert (status, code in ("unsupported_field", "unknown_field")) == (400, True)
    assert server.link.submitted == 0


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_embeds", "image_embeds": TENSOR},
        {"type": "audio_embeds", "audio_embeds": TENSOR},
        {"type": "tensor", "tensor": [[0.0] * 8]},
    ],
)
def test_a_part_of_a_message_that_is_a_tensor_is_a_400(rig, part):
    server = rig()
    body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 1}
    assert server.code("/v1/chat/completions", body)[0] == 400
    assert server.link.submitted == 0
    server.check_good()


@pytest.mark.parametrize("prompt", [[257], [10**9], [[0] * 70_000], [], [[]], ""])
def test_ids_that_the_model_does_not_have_end_one_request(rig, prompt):
    server = rig()
    assert server.code("/v1/completions", {"prompt": prompt, "max_tokens": 1})[0] == 400
    server.check_good()
