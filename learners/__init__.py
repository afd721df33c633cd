"""The learner: the only folder that imports deepspeed."""

import rlsys as rlsys  # first: it sees to it that our packages are found before others of the same name
