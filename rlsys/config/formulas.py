"""The names by which a configuration picks a formula. Apart from the formulas, which need torch."""

from __future__ import annotations

from typing import Literal

KLKind = Literal["k1", "k2", "k3"]  # rlsys.losses.kl_estimate
Level = Literal["token", "sequence", "geometric"]  # rlsys.off_policy.log_ratio
Correction = Literal["none", "tis", "mis", "decoupled"]  # rlsys.off_policy.importance_weights
