"""How long something may take of which it is not known yet what is usual."""

from __future__ import annotations

OF_DEADLINE = 3  # a hang is found in a third of the time in which it would end the run
OF_FORECAST = 1.5  # a forecast takes answers at their longest, and cards at a speed that some do not reach
LEAST_S = 60.0  # nothing is called long before


def first_limit_s(deadline_s: float, forecast_s: float | None = None, least_s: float = LEAST_S) -> float:
    """Seconds after which the first of its kind is called long. deadline_s: in which it fails.

    1200 s for an update with 3600 s, which takes 745 s in a model of 7 billion parameters on 5 GPUs; or as long as what
    is forecast for these machines allows.
    """
    return max(least_s, deadline_s / OF_DEADLINE, OF_FORECAST * (forecast_s or 0.0))
