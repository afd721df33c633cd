"""Refuses a wheel. Everything else about the package is in pyproject.toml."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class NoWheel(bdist_wheel):
    """A wheel would have neither recipes nor prompts, which a user would learn from a run that fails."""

    def run(self) -> None:
        raise SystemExit(
            "rlsys: error: no wheel can be made, because it would lack configs/ and the prompts; rlsys runs from its "
            "checkout: run `make setup` there, or `pip install -e .`, or build an image (deploy/README.md)"
        )


setup(cmdclass={"bdist_wheel": NoWheel})
