"""What people use beside a run: report, audit, chaos, plan, doctor, submit, score. No run imports it."""
