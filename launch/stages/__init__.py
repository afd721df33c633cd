"""The kinds of stage. A new kind is one file with a subclass of `launch.stages.base.Stage`, and one line here."""

from __future__ import annotations

# Dotted names, so that a command imports the kinds that its recipe names and no others.
STAGES: dict[str, str] = {
    "sft": "launch.stages.sft.SFT",
    "rl": "launch.stages.rl.RL",
    "generate": "launch.stages.generate.Generate",
    "judge": "launch.stages.judge.Judge",
    "stepwise": "launch.stages.stepwise.Stepwise",
    "dpo": "launch.stages.dpo.DPO",
    "eval": "launch.stages.eval.Eval",
}
