"""Options of a model behind an address, and what they mean."""

from __future__ import annotations

import argparse

from envs.services.secrets import check_address, read_secret
from rlsys.config.served import LIMITS, OMITTABLE, ServedConfig
from rlsys.errors import BadInput

NEEDING = ("model", "key_env", "requests_per_minute", "omit")  # an endpoint
OPTIONS = {"requests_per_minute": "--rpm"}


def add_served(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "a model behind an address",
        "An OpenAI-compatible one answers in place of the engines; --checkpoint then names the model whose tokenizer "
        "counts tokens.",
    )
    add = group.add_argument
    add("--endpoint", metavar="URL", help="address of an OpenAI-compatible API, such as https://host/v1")
    add("--model", metavar="NAME", help="name of the model at the endpoint")
    add("--key-env", metavar="VARIABLE", help="environment variable with the API key of the endpoint")
    add("--plain-http", action="store_true", help="allow the key to be sent over plain http to another machine")
    rpm = "largest number of requests per minute (default: no limit; eval.concurrency limits how many run at once)"
    add("--rpm", dest="requests_per_minute", type=int, metavar="N", help=rpm)
    usual = ServedConfig(endpoint="http://localhost", model="any")
    deadline = "timeout of one attempt at an answer, seconds (default: %(default)g)"
    add("--deadline", dest="deadline_s", type=float, default=usual.deadline_s, metavar="S", help=deadline)
    outage = "seconds to wait during a complete outage; then episodes fail (default: %(default)g)"
    add("--outage", dest="outage_s", type=float, default=usual.outage_s, metavar="S", help=outage)
    fields = f"fields of a request that the server does not know, with commas: {', '.join(OMITTABLE)}"
    add("--omit", metavar="FIELDS", help=fields)
    limit = "field with the limit of an answer's tokens (default: %(default)s)"
    add("--limit-key", choices=LIMITS, default=usual.limit_key, help=limit)


def read_served(options: argparse.Namespace) -> ServedConfig | None:
    """The model that the options name; None without --endpoint.

    Raises BadInput for options that do not go together, an address that cannot be asked, and a key that is not set.
    """
    if options.endpoint is None:
        for name in NEEDING:
            if getattr(options, name) is not None:
                option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
                raise BadInput(key=option, found=getattr(options, name), expected="--endpoint with it")
        return None
    key = ("--key-env", options.key_env)
    check_address("--endpoint", options.endpoint, key, plain_http=options.plain_http)
    read_secret(*key)
    return ServedConfig(
        endpoint=options.endpoint,
        model=options.model,
        key_env=options.key_env,
        plain_http=options.plain_http,
        requests_per_minute=options.requests_per_minute,
        deadline_s=options.deadline_s,
        outage_s=options.outage_s,
        omit=tuple(filter(None, (each.strip() for each in (options.omit or "").split(",")))),
        limit_key=options.limit_key,
    )
