"""`python -m launch` is `rlsys`: what `ray job submit` runs."""

from launch.cli import main

main()
