"""The hook of a pod that is about to be ended: the cluster's jobs save their checkpoints while Ray is still whole.

Without options, on the head: every running job is asked to stop, and waited for. With --only-wait, on a worker: it is
only waited for, because the job continues where this pod alone is ended. The grace period of the pod ends both.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from ray.job_submission import JobSubmissionClient

ENDED = {"STOPPED", "SUCCEEDED", "FAILED"}
POLL_S = 1.0
REQUEST_S = 10.0  # of each request
FAILURES = 3  # in a row, after which the head is gone: there is no job to wait for
OVERRIDING = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # Ray's client prefers them to the address that it is given


class Client(JobSubmissionClient):
    """Its requests end."""

    def _do_request(self, method: str, endpoint: str, **kwargs: Any) -> Any:
        return super()._do_request(method, endpoint, **{"timeout": REQUEST_S, **kwargs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-wait", action="store_true", help="stop no job")
    parser.add_argument("--limit", type=float, default=330.0, metavar="S", help="seconds, at most (330)")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.limit
    for name in OVERRIDING:
        os.environ.pop(name, None)
    head = os.environ.get("FQ_RAY_IP", "127.0.0.1")  # KubeRay gives it to workers: the name of the head's service
    client: Client | None = None
    stopped: set[str] = set()
    failures = 0
    while failures < FAILURES and time.monotonic() < deadline:
        try:
            client = client or Client(f"http://{head}:8265")
            jobs = running(client)
            if not jobs:
                return
            for job in () if arguments.only_wait else jobs:
                if job not in stopped:
                    client.stop_job(job)
                    stopped.add(job)
            failures = 0
        except Exception as error:  # fault boundary: whatever Ray's client raises, the pod is ended soon
            failures += 1
            print(f"stop_jobs: {error}")
        time.sleep(POLL_S)


def running(client: JobSubmissionClient) -> list[str]:
    """Submission IDs of the jobs that have not ended."""
    jobs = client.list_jobs()
    return [job.submission_id for job in jobs if job.submission_id is not None and job.status not in ENDED]


if __name__ == "__main__":
    main()
