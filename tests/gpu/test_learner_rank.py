"""A rank on a GPU: perturbed, exported, saved, loaded and in bfloat16, at every ZeRO stage; a model divided by NCCL."""

from tests.device import same_tests
from tests.e2e import test_learner_rank, test_partitioned, test_redivided

NAMES = (
    "test_a_step_that_is_not_finite_is_skipped_and_says_so",
    "test_scores_are_those_of_the_plain_model_in_the_order_of_the_lists",
    "test_perturbed_weights_are_published_and_scored_and_leave_no_trace",
    "test_an_export_holds_the_weights_that_score",
    "test_a_loaded_checkpoint_continues_to_the_same_bits",
    "test_bfloat16_learns_skips_and_is_saved_at_every_stage",
)
globals().update(same_tests(test_learner_rank, *NAMES))
globals().update(same_tests(test_partitioned, "test_what_is_divided_is_what_would_be_loaded_whole"))
globals().update(same_tests(test_redivided, "test_weights_in_16_bits_are_those_that_were_saved"))
