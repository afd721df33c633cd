"""The command line and the driver: the only place that constructs actors."""

import rlsys as rlsys  # first: it sees to it that our packages are found before others of the same name
