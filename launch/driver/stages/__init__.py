"""The kinds of stage. A new kind is one file with a subclass of `stages.base.Stage`, and one line here."""

from __future__ import annotations

# Dotted names, so that a command imports the kinds that its recipe names and no others.
STAGES: dict[str, str] = {
    "sft": "launch.driver.stages.sft.SFT",
    "rl": "launch.driver.stages.rl.RL",
    "generate": "launch.driver.stages.generate.Generate",
    "judge": "launch.driver.stages.judge.Judge",
    "stepwise": "launch.driver.stages.stepwise.Stepwise",
    "dpo": "launch.driver.stages.dpo.DPO",
    "eval": "launch.driver.stages.eval.Eval",
}
