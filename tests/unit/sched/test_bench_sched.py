"""The scheduler alone, over a null model."""

import json

from mstar_core.bench.sched import measure
from mstar_core.cli import main


def test_as_many_run_and_wait_in_the_last_step_as_in_the_first():
    found = measure(8, 50, 900)
    assert 5 < found.mean_running <= 8
    assert found.admitted > 10


def test_ten_times_the_line_costs_no_more_than_half_as_much_again():
    """Bounds are wide, since a test shares its machine; docs/measurements.md has the figures."""
    short, long = (measure(64, waiting, 400) for waiting in (1000, 10000))
    assert long.full_step_us < 2.5 * short.full_step_us
    assert short.full_step_us < 1500


def test_the_command_says_machine_and_times(capsys):
    assert main(["bench", "sched", "--rows", "8", "--waiting", "20,40", "--steps", "50"]) == 0
    out = capsys.readouterr().out
    assert "full step us" in out
    assert main(["bench", "sched", "--waiting", "5", "--rows", "4", "--steps", "9", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["waiting"], result["steps"]) == (5, 9)


def test_the_bench_of_the_host_needs_a_configuration(capsys):
    assert main(["bench", "host"]) == 2
    assert "CONFIG" in capsys.readouterr().err
