"""A tiny server of OpenAI's protocol over real sockets, and Triton's interpreter."""

import asyncio
import json
import subprocess
import sys
import threading

import pytest
from attrs import define, field, frozen

CHAT = "/v1/chat/completions"


@frozen
class Asked:
    """One request that arrived."""

    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def answer(body=b"{}", status=200, **headers):
    """A whole answer, as the pieces that go over the wire."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Some Words", f"content-length: {len(body)}"]
    told = {"content_type": "application/json", **headers}
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in told.items()]
    return ["\r\n".join([*lines, "", ""]).encode() + body]


def chunked(pieces, content_type="text/event-stream; charset=utf-8", whole=True):
    """A chunked answer; each of ``pieces`` is a chunk."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nx-request-id: req-1\r\n"
    head += "transfer-encoding: chunked\r\n\r\n"
    chunks = [b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return [head.encode(), *chunks, *([b"0\r\n\r\n"] if whole else [None])]


def event(told, end=b"\n"):
    """One server-sent event."""
    text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
    return b"data: " + text.encode() + end + end


def chat_chunk(text=None, finish=None, index=0, usage=None):
    """An event of a chat."""
    delta = {} if text is None else {"content": text}
    told = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
    told["choices"] = [{"index": index, "delta": delta, "finish_reason": finish}]
    if usage is not None:
        told.update(choices=[], usage=usage)
    return told


def completion_of(asked):
    """What an obedient server does with a chat or completion: the tokens that were asked for."""
    fields = asked.json
    count = fields.get("max_tokens") or fields.get("max_completion_tokens") or 4
    words = len(json.dumps(fields.get("messages") or fields.get("prompt")).split())
    usage = {"prompt_tokens": words, "completion_tokens": count, "total_tokens": words + count}
    if not fields.get("stream"):
        said = {"index": 0, "finish_reason": "length", "text": "t " * count}
        said["message"] = {"role": "assistant", "content": "t " * count}
        return answer({"id": "1", "model": "m", "choices": [said], "usage": usage})
    events = [event(chat_chunk("")), *(event(chat_chunk("t ")) for _ in range(count))]
    events += [event(chat_chunk(finish="length")), event(chat_chunk(usage=usage))]
    return chunked([*events, event("[DONE]")])


@define(eq=False, slots=False)
class StandIn:
    """The server; ``answers`` are per path a list of pieces, or a function of what was asked.

    A list of several such is used up one by one, the last one for ever. Between two pieces there
    is a moment, so that they arrive apart; None breaks the connection off.
    """

    pause_s: float = 0.001
    unix: str | None = None
    answers: dict = field(factory=dict)
    asked: list = field(factory=list)
    connections: int = 0
    left: threading.Event = field(factory=threading.Event)
    """A client closed its connection in the middle of an answer."""
    port: int = 0

    @property
    def url(self):
        return f"unix:{self.unix}" if self.unix else f"http://127.0.0.1:{self.port}"

    def start(self):
        up = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run(up)), daemon=True)
        self.thread.start()
        assert up.wait(10)
        return self

    async def run(self, up):
        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        self.tasks, self.writers = set(), []
        if self.unix:
            server = await asyncio.start_unix_server(self.accept, self.unix)
        else:
            server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
        up.set()
        await self.over.wait()
        await asyncio.sleep(0.01)  # who is just let in is in
        server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)  # transports close in the loop's next rounds

    def stop(self):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.over.set)
            self.thread.join(10)

    def accept(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        self.tasks.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except asyncio.CancelledError:
            pass  # the server stops
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.transport.abort()

    async def exchange(self, reader, writer):
        """One request and its answer; whether another may come."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        for piece in self.pieces(asked):
            if piece is None:
                return False
            writer.write(piece)
            await writer.drain()
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
                if reader.at_eof():
                    self.left.set()
                    return False
        return True

    def pieces(self, asked):
        default = completion_of if asked.body else answer(status=404)
        told = self.answers.get(asked.path, default)
        if isinstance(told, list) and told and (callable(told[0]) or isinstance(told[0], list)):
            told = told.pop(0) if len(told) > 1 else told[0]
        return told(asked) if callable(told) else told


@pytest.fixture
def stand_in():
    server = StandIn().start()
    yield server
    server.stop()


@pytest.fixture
def unix_stand_in(tmp_path):
    server = StandIn(unix=str(tmp_path / "s.sock")).start()
    yield server
    server.stop()


@pytest.fixture
def wire():
    """What builds answers: ``wire.answer``, ``wire.chunked``, ``wire.event`` and others."""

    class Wire:
        pass

    for made in (answer, chunked, event, chat_chunk, completion_of):
        setattr(Wire, made.__name__, staticmethod(made))
    return Wire


@pytest.fixture
def interpreted(monkeypatch):
    """``interpreted(file)``: its tests pass in a process whose Triton interprets; none skips."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    def run(file):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "passed" in done.stdout
        assert "skipped" not in done.stdout

    return run
