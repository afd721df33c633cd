"""Refuses a wheel. All else of the package is said in pyproject.toml."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class NoWheel(bdist_wheel):
    """Whoever installed one had no recipes and no prompts, and heard of it from a run that fails."""

    def run(self) -> None:
        raise SystemExit(
            "rlsys: error: it runs from its checkout, which holds configs/ and the prompts: `make setup` there, or "
            "`pip install -e .`, and no wheel"
        )


setup(cmdclass={"bdist_wheel": NoWheel})
