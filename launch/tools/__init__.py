"""What people use besides a run: report, audit, chaos, plan, doctor, submit, score, analysis; the driver needs none."""
