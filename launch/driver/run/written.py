"""Which groups of a step go into its file, by what the driver knows of them: their tokens, and not yet their texts."""

from __future__ import annotations

from collections.abc import Sequence

from launch.driver.run.rundir import sample_groups
from rlsys.config.output import TrajectoriesConfig
from rlsys.summaries import GroupRef, TrajectorySummary

# Bytes of a line of trajectories/ without compression, measured on episodes of 8k tokens of a vocabulary of 152k.
PER_EPISODE = 1_500  # keys, the task, rewards, times
PER_SAMPLED = 11.2  # a token's id and its share of the text
PER_LOGPROB = 2.7  # a float16 in base64
PER_READ = 4.5  # text of the prompt and of replies, a token


def choose_written(groups: Sequence[GroupRef], group_size: int, config: TrajectoriesConfig) -> list[GroupRef]:
    """Whole groups, spread evenly over all, within `trajectories.keep` and about within `keep_mb`: one at least."""
    bytes_of_all = sum(line_bytes(trajectory, config.logprobs) for group in groups for trajectory in group.summaries)
    keep = config.keep
    if bytes_of_all > config.most_bytes:
        fits = max(int(len(groups) * config.most_bytes / bytes_of_all), 1) * group_size
        keep = fits if keep is None else min(keep, fits)
    return sample_groups(groups, group_size, keep)


def line_bytes(episode: TrajectorySummary, logprobs: bool) -> float:
    """What its line is expected to take."""
    num_read, num_sampled = episode.turns[:, 1:3].sum(axis=0).tolist()
    return PER_EPISODE + float(num_read * PER_READ + num_sampled * (PER_SAMPLED + logprobs * PER_LOGPROB))
