"""The start-up table: its rows add up to the wall time, whoever was waited for."""

import time

import pytest

from mstar_core.serving.startup import Laps, exec_time, table


def test_laps_cover_the_time_between_their_marks():
    begun = time.monotonic()
    laps = Laps(begun)
    laps.mark("python")
    time.sleep(0.02)
    laps.mark_parts({"weights": 0.005, "capture": 0.01})
    assert [phase for phase, _ in laps.rows] == ["python", "weights", "capture", "other"]
    assert sum(seconds for _, seconds in laps.rows) == pytest.approx(laps.last - begun)
    assert laps.rows[-1][1] >= 0.005


def test_the_rows_follow_the_engine_and_what_was_missing_behind_it():
    made = table(
        began=100.0,
        spawned=100.2,
        engine_ready=103.2,
        engine=[("python", 1.0), ("weights", 2.0)],
        api=[("python", 0.5), ("front", 1.5), ("wait", 1.0), ("warm-up text", 0.3)],
        ended=103.5,
    )
    assert [(row.who, row.phase, round(row.seconds, 6)) for row in made.rows] == [
        ("command", "python", 0.2),
        ("engine", "python", 1.0),
        ("engine", "weights", 2.0),
        ("api", "warm-up text", 0.3),
        ("other", "", 0.0),
    ]
    assert [(row.phase, row.seconds) for row in made.meanwhile] == [
        ("python", 0.5),
        ("front", 1.5),
        ("wait", 1.0),
    ]
    assert sum(row.seconds for row in made.rows) == pytest.approx(made.total_s) == 3.5


def test_a_front_that_is_slower_than_the_engine_is_a_row_of_what_was_waited_for():
    made = table(
        began=0.0,
        spawned=0.5,
        engine_ready=1.5,
        engine=[("python", 0.9)],
        api=[("python", 0.4), ("front", 3.0), ("warm-up text", 0.1)],
        ended=4.0,
    )
    rows = [(row.who, row.phase, round(row.seconds, 6)) for row in made.rows]
    assert rows[2:4] == [("api", "front", 2.4), ("api", "warm-up text", 0.1)]
    assert rows[-1] == ("other", "", 0.1)
    assert [(row.phase, round(row.seconds, 6)) for row in made.meanwhile] == [
        ("python", 0.4),
        ("front", 0.6),
    ]


def test_the_table_and_its_json_say_the_same():
    made = table(
        began=0.0, spawned=0.25, engine_ready=1.25, engine=[("plan", 1.0)], api=[], ended=1.5
    )
    assert list(made.lines())[1:] == [
        "  command python          0.25",
        "  engine  plan            1.00",
        "  other                   0.25",
        "  total                   1.50",
    ]
    assert made.as_dict()["rows"][1] == {"who": "engine", "phase": "plan", "seconds": 1.0}


def test_the_time_of_exec_is_before_now_and_after_the_test_run_began():
    assert 0 < time.monotonic() - exec_time() < 24 * 3600
