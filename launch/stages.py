"""The old name of `launch.driver.stages`, for scripts of others that import it."""

from __future__ import annotations

from launch.driver import stages

__path__ = stages.__path__
