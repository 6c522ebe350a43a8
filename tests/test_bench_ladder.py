"""`python -m bench ladder`: which rungs are timed twice."""

import jax
import pytest

pytest.importorskip("rich")

from bench import ladder, timing


# In µs; "blocked" and the rest of the CPU's kinds are at 10.
@pytest.mark.parametrize(
    "auto, blocked, again",
    [
        (1.0, 1.04, {"auto", "blocked"}),
        (1.04, 1.0, {"auto", "blocked"}),
        (1.0, 1.06, set()),
        (1.06, 1.0, set()),
    ],
)
def test_rungs_in_doubt_are_timed_again_whoever_is_ahead(cpu, monkeypatch, auto, blocked, again):
    asked = []

    def measure(programs, platform, repeat):
        labels = {p.key.split("_", 1)[1]: p for p in programs}
        asked.append((set(labels), repeat))
        for program in programs:
            program.run(0)
        us = {"auto": 3.0, "blocked": 2.0}
        if len(asked) == 1:
            us = {"auto": auto, "blocked": blocked}
        return {p.key: timing.Timing(us.get(k, 10.0) * 1e-6, "wall") for k, p in labels.items()}

    monkeypatch.setattr(timing, "measure", measure)
    with jax.default_device(cpu.device):
        table = ladder.Ladder("cpu", 5, lambda text: None).table(64, "float32")
    assert asked[0][1] == 5 and {"auto", "blocked", "naive", "jnp", "copy"} <= asked[0][0]
    assert asked[1:] == ([(again, 10)] if again else [])
    rows = table["rows"]
    assert {name for name, row in rows.items() if "retimed" in row} == again
    if again:
        assert (rows["auto"]["us"], rows["blocked"]["us"]) == (3.0, 2.0)
        assert (rows["auto"]["first_us"], rows["blocked"]["first_us"]) == (auto, blocked)
    assert f"{len(again)} rows" in ladder.retimed([table])
