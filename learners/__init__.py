"""The learner: the only folder that imports deepspeed."""
