"""The job server of a Ray cluster: Ray's own client, with a deadline for each call and one line for each failure."""

from __future__ import annotations

import logging
import os
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from launch.checks.machine import STOP_WAIT
from launch.tools.submit.job import AUTH_MODE, OVERRIDING, RUN_DIR, Job
from rlsys.errors import BadInput, RunFailed

T = TypeVar("T")

CALL_S = 15.0  # for an answer to begin
CONFIRM_S = 60.0  # for that to a submission or a stop: a busy head node starts or ends processes first
UPLOAD_S = 120.0  # between two pieces of a folder that is sent
TALKATIVE = (  # modules of Ray that set a level of their own
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
    "ray._private.runtime_env.working_dir",
)
PORT = 8265  # of the dashboard, where `ray start` is not told another one
OTHER = "what listens there is another server"
TOKEN_FILE = "~/.ray/auth_token"


class Unreachable(RunFailed):
    """The server does not answer, now."""


class NoSuchJob(BadInput):
    """The server answers, and does not know the job."""


@dataclass(frozen=True, slots=True)
class JobState:
    status: str  # "PENDING", "RUNNING", "SUCCEEDED", "FAILED" or "STOPPED"
    code: int | None = None  # of its command, where that has ended by itself
    message: str | None = None  # Ray's
    run_dir: str | None = None
    stop_wait: int | None = None  # seconds, of a job of ours


def choose_token(environment: Mapping[str, str]) -> tuple[str | None, str]:
    """(RAY_AUTH_MODE for Ray's client, what is said of it). As `ray start` does, a token that is there is used."""
    mode = environment.get(AUTH_MODE)
    if mode is not None and mode.lower() != "token":
        return mode, f"no token ({AUTH_MODE}={mode})"
    file = Path(environment.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE).expanduser()
    if environment.get("RAY_AUTH_TOKEN"):
        return "token", "token from RAY_AUTH_TOKEN"
    if file.is_file():
        return "token", f"token from {environment.get('RAY_AUTH_TOKEN_PATH') or TOKEN_FILE}"
    if mode is not None:
        raise BadInput(f"{AUTH_MODE}=token, and there is no token", where=file, expected="a copy of the cluster's")
    return None, "no token"


def use_token() -> str:
    """Set RAY_AUTH_MODE where a token is there. Before anything of Ray is imported: it is read once. Returns what is
    said of it."""
    mode, message = choose_token(os.environ)
    if mode is not None:
        os.environ[AUTH_MODE] = mode
    return message


class Server:
    """Every call raises Unreachable where nothing answers, and BadInput where the answer is a refusal."""

    def __init__(self, address: str) -> None:
        """Raises BadInput where no Ray of this process's version answers."""
        for name in OVERRIDING:
            os.environ.pop(name, None)
        import ray
        from ray.job_submission import JobSubmissionClient

        for name in TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)

        class Client(JobSubmissionClient):  # type: ignore[misc]
            """Its requests end."""

            def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
                seconds = {"PUT": UPLOAD_S, "POST": CONFIRM_S}.get(method, CALL_S)
                return super()._do_request(method, endpoint, **{"timeout": seconds, **options})

        self.address = address
        try:
            self._client = _call_ray(lambda: Client(address))
        except (Unreachable, LookupError, TypeError) as error:  # the latter of another server's JSON
            reason = error if isinstance(error, Unreachable) else OTHER
            way = f"its port is {PORT}, or as `ray start --head` printed it; in Kubernetes, kubectl port-forward"
            raise BadInput(f"no Ray dashboard answers ({reason}): {way}", key="--address", found=address) from error
        theirs = self._client._server_ray_version
        if theirs != ray.__version__:
            need = "the version of launch/locks on every node"
            raise BadInput(f"the cluster has Ray {theirs}, this machine {ray.__version__}", expected=need)

    def shared_machine(self) -> str | None:
        """The address of two living nodes on one machine, if there are any: both unpack uploads in one place."""

        def nodes() -> Any:
            answer = self._client._do_request("GET", "/api/v0/nodes?limit=10000&timeout=10")
            answer.raise_for_status()
            return answer.json()["data"]["result"]["result"]

        addresses = Counter(str(node["node_ip"]) for node in _call_ray(nodes) if node["state"] == "ALIVE")
        return next((address for address, count in addresses.items() if count > 1), None)

    def submit(self, job: Job) -> None:
        try:
            _call_ray(
                lambda: self._client.submit_job(
                    entrypoint=shlex.join(job.command),
                    submission_id=job.id,
                    runtime_env=job.environment,
                    metadata=job.metadata,
                )
            )
        except Unreachable as error:  # the cluster may have it all the same
            again = f"`rlsys submit --address {self.address}` with --attach {job.id} or --stop {job.id}"
            raise Unreachable(f"job {job.id} is not confirmed ({error}), and may run: {again}") from error

    def state(self, job: str) -> JobState:
        info = _call_ray(lambda: self._client.get_job_info(job))
        wait = ((info.runtime_env or {}).get("env_vars") or {}).get(STOP_WAIT, "")
        return JobState(
            info.status.value,
            info.driver_exit_code,
            info.message,
            (info.metadata or {}).get(RUN_DIR),
            int(wait) if wait.isdigit() else None,
        )

    def stop(self, job: str) -> bool:
        """Whether it was running."""
        return bool(_call_ray(lambda: self._client.stop_job(job)))

    def tail(self, job: str) -> AsyncIterator[str]:
        """The log from its beginning, in pieces."""
        pieces: AsyncIterator[str] = self._client.tail_job_logs(job)
        return pieces


def _call_ray(call: Callable[[], T]) -> T:
    """What Ray's client answers, its errors as ours."""
    import requests
    from ray.exceptions import AuthenticationError

    try:
        return call()
    except AuthenticationError as error:
        way = f"{AUTH_MODE}=token, and the cluster's token in {TOKEN_FILE} (of the user that called `ray start`)"
        raise BadInput(str(error).splitlines()[0], expected=way) from error
    except (requests.RequestException, ConnectionError) as error:
        raise Unreachable(_first_cause(error)) from error
    except RuntimeError as error:  # what the server refused, or an error within it
        message = str(error)
        if "does not exist" in message:
            raise NoSuchJob("there is no such job on this cluster") from error
        if "status code 5" in message or "Version check" in message:
            raise Unreachable(_last_line(message)) from error
        raise BadInput(_last_line(message)) from error


def _first_cause(error: BaseException) -> str:
    cause: BaseException = error
    while cause.__context__ is not None or cause.__cause__ is not None:
        if isinstance(cause, JSONDecodeError):
            return OTHER
        cause = cause.__cause__ or cause.__context__ or cause
    if isinstance(cause, HTTPException) and not isinstance(cause, ConnectionError):  # its text is what was answered
        return "what listens there speaks no HTTP, as Ray's own port does not"
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _last_line(message: str) -> str:
    return next((line.strip() for line in reversed(message.splitlines()) if line.strip(" .")), message)[:500]
