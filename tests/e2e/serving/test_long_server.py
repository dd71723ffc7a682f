"""What only shows with time: kills under load, clients that leave, memory. ``make long``; and a
fixed slice of each that every run takes."""

import asyncio
import json
import os
import random
import signal
import socket
import statistics
import struct
import threading
import time

import pytest

from mstar_core.serving.codec import to_json

LONG = pytest.mark.long


def sliced(few, many):
    """``few`` always, ``many`` with the long tests."""
    return [few, pytest.param(many, marks=LONG)]


def load(server, stop, results):
    """One client that always has a stream open; (begin, end, outcome) of each until ``stop``."""
    while not stop.is_set():
        begun = time.monotonic()
        try:
            _, code, done = server.stream("!delay=0.002 " + "x" * 400)
            outcome = "done" if done else code or "cut"
        except OSError:
            outcome = "refused"
        results.append((begun, time.monotonic(), outcome))
        if outcome in ("not_ready", "refused"):
            time.sleep(0.05)


@pytest.mark.parametrize("rounds", sliced(2, 100))
def test_a_killed_engine_never_keeps_a_client_waiting(serve, faults, rounds):
    server = serve(*faults, "--set", "server.max_restarts=1000").ready()
    stop, results, kills, backs = threading.Event(), [], [], []
    clients = [threading.Thread(target=load, args=(server, stop, results)) for _ in range(8)]
    for client in clients:
        client.start()
    try:
        for _ in range(rounds):
            server.running(4)
            before = server.engine
            kills.append(time.monotonic())
            os.kill(before, signal.SIGKILL)
            server.replaced("engine", before)
            backs.append(time.monotonic() - kills[-1])
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert {outcome for _, _, outcome in results} <= {"done", "engine_restarted", "not_ready"}
    waits = [
        end - killed
        for killed in kills
        for begun, end, outcome in results
        if outcome == "engine_restarted" and begun <= killed <= end
    ]
    assert len(waits) >= 2 * rounds
    print(f"{rounds} kills, {len(results)} requests, {len(waits)} of them cut off")
    print(f"cut off after {statistics.median(waits):.3f} s, at most {max(waits):.3f} s")
    print(f"ready again after {statistics.median(backs):.2f} s, at most {max(backs):.2f} s")
    assert max(waits) < 2 * 5
    assert max(backs) < 5 * 5
    assert server.complete("fine").json["choices"][0]["text"] == "fine"
    server.until(lambda: server.metric("mstar_requests_running") == 0)


def leave(server, rng):
    """Ask for something, and leave at a random moment, in a random manner."""
    path, body = rng.choice(
        [
            ("/v1/completions", {"prompt": "!delay=0.002 " + "x" * 300}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "!delay=0.002 y"}]}),
        ]
    )
    body |= {
        "model": "echo",
        "max_tokens": 200,
        "stream": rng.random() < 0.6,
        "n": rng.choice((1, 3)),
    }
    content = to_json(body)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(content)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        whole = head.encode() + content
        sock.sendall(whole[: rng.randrange(1, len(whole))] if rng.random() < 0.1 else whole)
        sock.settimeout(rng.choice((0.001, 0.01, 0.05, 0.2)))
        try:
            while sock.recv(4096) and rng.random() < 0.9:
                pass
        except TimeoutError:
            pass
        if rng.random() < 0.5:  # a reset instead of a goodbye
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def held(server):
    """What is held of the engine and in the server: all numbers that must be 0 when it is idle."""
    names = ("requests_open", "requests_running", "requests_waiting", "resource_usage_ratio")
    return {name: server.metric(f"mstar_{name}") for name in names}


@pytest.mark.parametrize("aborts", sliced(60, 1000))
def test_clients_that_leave_leave_nothing_behind(serve, faults, aborts):
    server = serve(*faults).ready()
    seeds = iter(range(aborts))
    lock = threading.Lock()

    def client():
        while True:
            with lock:
                seed = next(seeds, None)
            if seed is None:
                return
            leave(server, random.Random(seed))

    before = [fds(pid) for pid in (server.api(), server.engine)]
    clients = [threading.Thread(target=client) for _ in range(16)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()

    def is_empty():
        """nothing is held"""
        return not any(held(server).values())

    server.until(is_empty, 30)
    server.until(lambda: [fds(pid) for pid in (server.api(), server.engine)] <= before, 30)
    print(f"{aborts} aborts: {held(server)}, open files {before} before and after")
    assert server.complete("fine").json["choices"][0]["text"] == "fine"
    assert "Traceback" not in server.log, server.log[-4000:]
    assert len(server.pids("engine")) == len(server.pids("API process 0")) == 1


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def resident(pid):
    """Bytes of memory that a process has."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def ask(port, requests, took):
    """One connection that takes requests from the iterator, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for content in requests:
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        begun = time.perf_counter()
        writer.write(f"{head}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = int(answer.lower().partition(b"content-length: ")[2].split()[0])
        text = json.loads(await reader.readexactly(length))["choices"][0]["text"]
        took.append(time.perf_counter() - begun)
        assert text.encode() in content
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("number", sliced(1000, 100_000))
def test_memory_and_descriptors_stay_as_they_are(serve, number):
    server = serve().ready()
    pids = {"supervisor": server.process.pid, "api": server.api(), "engine": server.engine}
    samples, took = [], []

    def requests():
        for n in range(number):
            if n % (number // 100) == 0:
                samples.append((n, {who: resident(pid) for who, pid in pids.items()}))
            yield to_json({"model": "echo", "prompt": f"request {n} says hello", "max_tokens": 64})

    async def run():
        taken = requests()
        await asyncio.gather(*(ask(server.port, taken, took) for _ in range(8)))

    begun = time.monotonic()
    counts = {}
    asyncio.run(ask(server.port, [to_json({"model": "echo", "prompt": "first"})] * 50, []))
    before = {who: (fds(pid), threads(pid)) for who, pid in pids.items()}
    asyncio.run(run())
    seconds = time.monotonic() - begun

    def is_back():
        """no more descriptors and threads than before"""
        counts.update({who: (fds(pid), threads(pid)) for who, pid in pids.items()})
        return all(
            now <= was for who in pids for now, was in zip(counts[who], before[who], strict=False)
        )

    server.until(is_back, 20)
    print(f"open files and threads before {before}, after {counts}")
    print(f"{number} requests in {seconds:.0f} s, median {statistics.median(took) * 1e3:.2f} ms")
    for who in pids:
        late = [(n, sizes[who]) for n, sizes in samples if n >= number // 5]
        slope = statistics.linear_regression(*zip(*late, strict=True)).slope
        grown = late[-1][1] - late[0][1]
        print(
            f"{who}: {late[-1][1] >> 20} MiB, {slope:.0f} bytes/request, {grown >> 10} KiB in all"
        )
        if number >= 100_000:
            assert slope < 1000, who
    assert held(server)["requests_open"] == 0
