"""Family 8: a server that is made to ask where it must not.

CVE-2026-24779, its bypass CVE-2026-25960 (two URL parsers that disagreed), CVE-2026-34753 (a second
way in that was forgotten).
"""

import ast
import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
import threading
import time

import pytest

from mstar_core.config.limits import LimitsConfig
from mstar_core.serving.errors import ApiError
from mstar_core.serving.media.addresses import is_public
from mstar_core.serving.media.fetch import Fetcher
from mstar_core.testing.sound import encoded, tone

NAME = "media.test"
HOSTS = ("media.test", "other.test:8443", "2130706433", "127.0.0.1", "localhost", "0x7f.1")
SOUND = encoded(tone(1, 8_000), 8_000)
PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")

BARRED = [
    r"http://127.0.0.1\@x",
    r"https://127.0.0.1\@media.test/a",
    r"https://media.test\@127.0.0.1/a",
    r"https://media.test\.evil.test/a",
    "https://media.test@127.0.0.1/a",
    "https://user:pass@media.test/a",
    "https://media.test#@127.0.0.1/a",
    "https://media.test/a#b",
    "https://media.test:443@127.0.0.1/a",
    "https://evil.test/a?https://media.test/",
    "https://media.test.evil.test/a",
    "https://evilmedia.test/a",
    "https://media.test./a",
    "https://media.test:8443/a",
    "https://other.test/a",
    "https://media.test:99999/a",
    "https://media.test:/a",
    "https://media.test:4 43/a",
    "http://media.test/a",
    "ftp://media.test/a",
    "file:///etc/passwd",
    "file://media.test/etc/passwd",
    "/etc/passwd",
    "media.test/a",
    "//media.test/a",
    "https:media.test/a",
    "https:/media.test/a",
    "https:///media.test/a",
    "https://[::1]/a",
    "https://[::ffff:127.0.0.1]/a",
    "https://[fe80::1%25eth0]/a",
    "https://%6dedia.test/a",
    "https://media.test%00.evil.test/a",
    "https://\uff4dedia.test/a",
    "https://media.test/a\r\nhost: evil.test",
    "https://media.test/a\tb",
    "https://media.test/ä",
    " https://media.test/a",
    "https://media.test/a\n",
    "data:audio/wav;base64,UklGRg==",
    "gopher://media.test/_GET",
    "jar:https://media.test/a!/b",
    "https://media.test/" + "a" * 2048,
    "https://",
    "",
]
"""URLs that are refused for what they are, whoever they lead to."""
INNER = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::127.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "2001::1",
    "2001:db8::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "localhost",
    "",
]
"""Addresses that are not the world's, or none."""


def limits(**more):
    return LimitsConfig(**{"media_timeout_s": 20.0, **more})


def fetch(fetcher, url):
    """The bytes behind ``url``."""
    file = asyncio.run(fetcher.fetch(url))
    try:
        return os.pread(file, 1 << 24, 0)
    finally:
        os.close(file)


def open_files():
    """What the descriptors of this process are."""
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{each}")


def refused(fetcher, url):
    with pytest.raises(ApiError) as error:
        fetch(fetcher, url)
    assert not any("fetched" in each for each in open_files())
    assert error.value.param == "url"
    return error.value.code


def resolver(*answers):
    """Resolves to the first answer, then to the next, and counts."""
    left = list(answers)

    async def resolve(host, port):
        resolve.asked += 1
        return left.pop(0) if len(left) > 1 else left[0]

    resolve.asked = 0
    return resolve


@pytest.mark.parametrize("url", BARRED)
def test_a_url_that_is_not_plain_is_refused_before_any_name_is_resolved(url):
    """CVE-2026-25960."""
    resolve = resolver(["93.184.215.14"])
    fetcher = Fetcher(HOSTS, limits(), resolve=resolve)
    assert refused(fetcher, url) == "media_not_allowed"
    assert resolve.asked == 0


@pytest.mark.parametrize("address", INNER)
def test_an_address_that_is_not_the_worlds_is_not_connected_to(address):
    """CVE-2026-24779; also where only one of a name's addresses is such."""
    assert not is_public(address)
    for found in ([address], ["93.184.215.14", address], [address, "93.184.215.14"]):
        fetcher = Fetcher(HOSTS, limits(), resolve=resolver(found))
        assert refused(fetcher, f"https://{NAME}/a") == "media_not_allowed"


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f::1", "::ffff:93.184.215.14"])
def test_the_worlds_addresses_may_be_asked(address):
    assert is_public(address)


@pytest.mark.parametrize("host", ["2130706433", "127.0.0.1", "localhost", "0x7f.1"])
def test_a_name_that_the_system_takes_for_this_machine_is_refused_though_it_is_listed(host):
    """The system's own resolver is asked, and its answer is judged."""
    fetcher = Fetcher(HOSTS, limits())
    assert refused(fetcher, f"https://{host}/a") in ("media_not_allowed", "invalid_value")


def test_nothing_is_fetched_unless_hosts_are_named(rig):
    server = rig()
    for path in PATHS:
        for url in ("https://media.test/a.wav", "file:///etc/passwd"):
            assert server.code(path, {"url": url}) == (400, "media_not_allowed")
    server.check_good()


def test_there_is_one_way_out_and_every_route_takes_it(shipped):
    """CVE-2026-34753: in shipped code only the fetcher opens connections for a request."""
    callers = {
        path
        for path, tree in shipped.items()
        if path.startswith("mstar_core/serving")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("open_connection", "create_connection", "urlopen", "getaddrinfo")
    }
    assert callers <= {"mstar_core/serving/media/fetch.py", "mstar_core/serving/listening.py"}
    modules = {
        (alias.name if isinstance(node, ast.Import) else node.module or "").partition(".")[0]
        for path, tree in shipped.items()
        if path.startswith("mstar_core/serving")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not modules & {"requests", "httpx", "httpx2", "aiohttp", "urllib3"}


# a server of ours --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Certificate and key of ``media.test``, of nobody else."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate for a TLS server")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    command = ["openssl", "req", "-x509", *kind, "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def answer(body, status="200 OK", *headers):
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n"
    + SOUND[:4]
    + b"\r\n%x\r\n" % (len(SOUND) - 4)
    + SOUND[4:]
    + b"\r\n0\r\n\r\n"
)
ANSWERS = {
    "/sound.wav": answer(SOUND),
    "/chunked": CHUNKED,
    "/open": b"HTTP/1.1 200 OK\r\n\r\n" + SOUND,
    "/away": answer(b"", "302 Found", "location: https://127.0.0.1/"),
    "/moved": answer(b"", "308 Permanent Redirect", f"location: https://{NAME}/sound.wav"),
    "/gone": answer(b"no", "404 Not Found"),
    "/packed": answer(SOUND, "200 OK", "content-encoding: gzip"),
    "/large": answer(bytes(2 << 20)),
    "/lies": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\nabc",
    "/endless": b"HTTP/1.1 200 OK\r\n\r\n" + bytes(3 << 20),
    "/no-http": b"220 smtp.test ready\r\n",
    "/long-head": b"HTTP/1.1 200 OK\r\nx: " + b"a" * (1 << 20),
    "/silent": None,
}


class Host:
    """A TLS server on this machine, on a port of its own, that remembers what it was asked."""

    def __init__(self, cert, key):
        self.asked = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self):
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        self._over = asyncio.Event()
        self._loop.set_exception_handler(lambda loop, context: None)
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()

    async def _answer(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.asked.append((path, head))
            if (told := ANSWERS.get(path.partition("?")[0])) is None:
                await self._over.wait()
            else:
                writer.write(told)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def close(self):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


@pytest.fixture
def host(certificate):
    made = Host(*certificate)
    yield made
    made.close()


def fetcher_of(host, certificate, *, name=NAME, resolve=None, is_allowed=None, **more):
    """A fetcher that takes this machine for the world and trusts the host's certificate."""
    return Fetcher(
        [f"{name}:{host.port}"],
        limits(**more),
        resolve=resolve or resolver(["127.0.0.1"]),
        is_allowed=is_allowed or (lambda address: address == "127.0.0.1"),
        trust=lambda: ssl.create_default_context(cafile=str(certificate[0])),
    )


@pytest.mark.parametrize("path", ["/sound.wav", "/sound.wav?a=b&c=%20", "/chunked", "/open"])
def test_sound_is_fetched_from_a_host_that_is_named(host, certificate, path):
    fetcher = fetcher_of(host, certificate)
    assert fetch(fetcher, f"https://{NAME}:{host.port}{path}") == SOUND
    ((asked, head),) = host.asked
    assert asked == path
    assert f"host: {NAME}:{host.port}\r\n".encode() in head
    assert b"authorization" not in head.lower()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/away", "invalid_value"),
        ("/moved", "invalid_value"),
        ("/gone", "invalid_value"),
        ("/packed", "invalid_value"),
        ("/lies", "invalid_value"),
        ("/no-http", "invalid_value"),
        ("/long-head", "invalid_value"),
        ("/large", "limit_exceeded"),
        ("/endless", "limit_exceeded"),
    ],
)
def test_what_is_no_sound_of_bounded_size_is_refused_and_nobody_else_is_asked(
    host, certificate, path, code
):
    """A redirect is not followed, wherever it leads."""
    fetcher = fetcher_of(host, certificate, max_body_bytes=1 << 20)
    assert refused(fetcher, f"https://{NAME}:{host.port}{path}") == code
    assert len(host.asked) == 1


def test_a_host_that_does_not_answer_is_given_up(host, certificate):
    fetcher = fetcher_of(host, certificate, media_timeout_s=0.5)
    started = time.monotonic()
    assert refused(fetcher, f"https://{NAME}:{host.port}/silent") == "invalid_value"
    assert time.monotonic() - started < 5 * 0.5


def test_a_name_is_resolved_once_so_a_second_answer_changes_nothing(host, certificate):
    """CVE-2026-25960: what was checked is what is connected to."""
    resolve = resolver(["127.0.0.1"], ["127.0.0.2"])
    fetcher = fetcher_of(host, certificate, resolve=resolve)
    assert fetch(fetcher, f"https://{NAME}:{host.port}/sound.wav") == SOUND
    assert resolve.asked == 1
    assert refused(fetcher, f"https://{NAME}:{host.port}/sound.wav") == "media_not_allowed"
    assert len(host.asked) == 1


def test_a_certificate_of_another_name_or_of_nobody_we_trust_is_refused(host, certificate):
    stranger = fetcher_of(host, certificate, name="evil.test")
    assert refused(stranger, f"https://evil.test:{host.port}/sound.wav") == "invalid_value"
    doubting = Fetcher(
        [f"{NAME}:{host.port}"],
        limits(),
        resolve=resolver(["127.0.0.1"]),
        is_allowed=lambda address: True,
    )
    assert refused(doubting, f"https://{NAME}:{host.port}/sound.wav") == "invalid_value"
    assert host.asked == []


@pytest.mark.parametrize("path", PATHS)
def test_the_routes_hear_what_was_fetched_and_tell_nothing_of_what_was_not(
    rig, host, certificate, path
):
    server = rig(server={"media_hosts": (f"{NAME}:{host.port}",)})
    server.service.fetcher = fetcher_of(host, certificate)
    heard = server.ask(path, {"url": f"https://{NAME}:{host.port}/sound.wav"})
    assert (heard.status, heard.json()["text"]) == (200, "1.00 s of sound")
    gone = server.ask(path, {"url": f"https://{NAME}:{host.port}/gone"})
    none = server.ask(path, {"url": f"https://{NAME}:{host.port}/no-http"})
    assert gone.status == none.status == 400
    assert b"127.0.0.1" not in gone.body + none.body
    assert b"smtp" not in none.body
    assert server.code(path, {"url": "https://other.test/a"}) == (400, "media_not_allowed")
    server.check_good()
