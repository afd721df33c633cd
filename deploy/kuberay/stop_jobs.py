"""The hook of a pod that is about to be ended: the cluster's jobs save their checkpoints while Ray is still whole.

Without options, on the head: every running job is asked to stop, and waited for. With --only-wait, on a worker: it is
only waited for, because the job continues where this pod alone is ended. The grace period of the pod ends both.
"""

from __future__ import annotations

import argparse
import os
import time

from ray.job_submission import JobSubmissionClient

ENDED = {"STOPPED", "SUCCEEDED", "FAILED"}
POLL_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-wait", action="store_true", help="stop no job")
    parser.add_argument("--limit", type=float, default=330.0, metavar="S", help="seconds, at most (330)")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.limit
    head = os.environ.get("FQ_RAY_IP", "127.0.0.1")  # KubeRay gives it to workers: the name of the head's service
    try:
        client = JobSubmissionClient(f"http://{head}:8265")
        if not arguments.only_wait:
            for job in running(client):
                client.stop_job(job)
        while running(client) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    except (OSError, RuntimeError) as error:  # the head is gone: there is no job to wait for
        print(f"stop_jobs: {error}")


def running(client: JobSubmissionClient) -> list[str]:
    """Submission IDs of the jobs that have not ended."""
    jobs = client.list_jobs()
    return [job.submission_id for job in jobs if job.submission_id is not None and job.status not in ENDED]


if __name__ == "__main__":
    main()
