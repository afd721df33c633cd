"""What people use beside a run: report, audit, chaos, plan, doctor, submit, score, analysis. No part of a run is here."""
