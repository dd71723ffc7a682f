"""When a child is started again, when it is taken for hung, and what a start says of itself."""

import shutil
import subprocess

import pytest

from mstar_core.config.server import ServerConfig
from mstar_core.errors import ConfigError
from mstar_core.serving.listening import check_server, is_local, listen
from mstar_core.serving.orders import Beat, Phase, State
from mstar_core.serving.supervisor.policy import MAX_DELAY_S, Pulse, Restarts
from mstar_core.serving.supervisor.progress import Progress


def test_a_child_that_keeps_ending_is_started_later_and_later():
    restarts = Restarts(max_restarts=100, window_s=1e9)
    assert [restarts.ended(now) for now in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert [restarts.ended(now) for now in range(5, 40)][-1] == MAX_DELAY_S


def test_a_child_that_was_ready_is_started_at_once():
    restarts = Restarts(max_restarts=100, window_s=1e9)
    for now in range(3):
        restarts.ended(now)
    restarts.ready()
    assert restarts.ended(4) == 0.0


def test_more_ends_than_allowed_within_the_window_are_the_last():
    restarts = Restarts(max_restarts=2, window_s=10.0)
    assert [restarts.ended(now) is None for now in (0, 1, 2)] == [False, False, True]
    spread = Restarts(max_restarts=2, window_s=10.0)
    assert [spread.ended(now) is None for now in (0, 6, 12, 18, 24)] == [False] * 5


def test_without_restarts_the_first_end_is_the_last():
    assert Restarts(max_restarts=0, window_s=10.0).ended(5.0) is None


@pytest.mark.parametrize(
    ("beats", "said"),
    [
        ([(n / 2, Beat(n, True)) for n in range(20)], None),
        ([(n / 2, Beat(7, False)) for n in range(20)], None),
        ([(n / 2, Beat(7, True)) for n in range(20)], "has made no progress for 9.6 s"),
        ([(0.0, Beat(1, True))], "has not been heard of for 9.6 s"),
        ([(0.0, Beat(1, False)), (9.0, Beat(1, True))], None),
    ],
)
def test_a_busy_child_must_get_on_and_an_idle_one_be_heard(beats, said):
    pulse = Pulse(0.0, 0.0)
    for now, beat in beats:
        pulse.beat(beat, now)
    assert pulse.hung(9.6, 2.0) == said


def test_progress_is_told_when_a_phase_begins_and_ends_and_now_and_then():
    progress = Progress(State("starting"))
    told = [progress.note(Phase("weights", done, 1000)) for done in range(1, 1001)]
    assert (told[0], told[-1]) == (True, True)
    assert sum(told) < 100
    assert progress.note(Phase("capture", 0, 3))
    assert (progress.state.phase, progress.state.eta_s) == ("capture", None)
    progress.note(Phase("capture", 3, 3))
    assert progress.state.eta_s == 0.0


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.7", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_only_addresses_of_this_machine_need_no_key(host, local, tmp_path):
    assert is_local(host) is local
    config = ServerConfig(host=host)
    if local:
        check_server(config, insecure=False)
    else:
        with pytest.raises(ConfigError, match="--api-key-file FILE, or --insecure"):
            check_server(config, insecure=False)
    check_server(config, insecure=True)
    keys = tmp_path / "keys"
    keys.write_text("k" * 20)
    check_server(ServerConfig(host=host, api_key_file=str(keys)), insecure=False)
    check_server(ServerConfig(host=host, uds=str(tmp_path / "s")), insecure=False)


def test_keys_that_cannot_be_used_are_said_before_anything_starts(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("short")
    for file in (keys, tmp_path / "none"):
        with pytest.raises(ConfigError, match="got"):
            check_server(ServerConfig(api_key_file=str(file)), insecure=False)


def test_a_tls_key_with_a_pass_phrase_is_refused_and_nobody_is_asked(tmp_path):
    """The question would go to the terminal, and each process would wait for its answer."""
    files = {kind: tmp_path / f"{kind}.pem" for kind in ("cert", "key")}
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:abcd"]
    command += ["-subj", "/CN=localhost", "-keyout", files["key"], "-out", files["cert"]]
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to write a certificate with")
    subprocess.run(command, check=True, capture_output=True)
    config = ServerConfig(tls_cert=str(files["cert"]), tls_key=str(files["key"]))
    with pytest.raises(ConfigError, match="no pass phrase"):
        check_server(config, insecure=False)


def test_a_free_port_is_taken_and_said_in_the_address():
    listening = listen(ServerConfig(port=0))
    assert listening.url == f"http://127.0.0.1:{listening.sock.getsockname()[1]}"
    with pytest.raises(ConfigError, match="no other program listens on"):
        listen(ServerConfig(port=listening.sock.getsockname()[1]))
    listening.close()


def test_an_ipv6_address_is_written_in_brackets():
    try:
        listening = listen(ServerConfig(host="::1", port=0))
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    assert listening.url.startswith("http://[::1]:")
    listening.close()
