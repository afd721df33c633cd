"""Options of a model behind an address, and what they mean."""

from __future__ import annotations

import argparse

from envs.services.secrets import check_address, read_secret
from rlsys.config.served import LIMITS, OMITTABLE, ServedConfig
from rlsys.errors import BadInput

OPTIONS = {  # that need an endpoint, by field of ServedConfig
    "model": "--model",
    "key_env": "--key-env",
    "plain_http": "--plain-http",
    "requests_per_minute": "--rpm",
    "deadline_s": "--deadline",
    "outage_s": "--outage",
    "omit": "--omit",
    "limit_key": "--limit-key",
}


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
    add(
        "--plain-http",
        action="store_true",
        default=None,
        help="allow the key to be sent over plain http to another machine",
    )
    rpm = "largest number of requests per minute (default: no limit; eval.concurrency limits how many run at once)"
    add("--rpm", dest="requests_per_minute", type=int, metavar="N", help=rpm)
    usual = ServedConfig(endpoint="http://localhost", model="any")
    deadline = f"timeout of one attempt at an answer, seconds (default: {usual.deadline_s:g})"
    add("--deadline", dest="deadline_s", type=float, metavar="S", help=deadline)
    outage = f"seconds to wait during a complete outage; then episodes fail (default: {usual.outage_s:g})"
    add("--outage", dest="outage_s", type=float, metavar="S", help=outage)
    fields = f"fields of a request that the server does not know, with commas: {', '.join(OMITTABLE)}"
    add("--omit", metavar="FIELDS", help=fields)
    limit = f"field with the limit of an answer's tokens (default: {usual.limit_key})"
    add("--limit-key", choices=LIMITS, help=limit)


def read_served(options: argparse.Namespace) -> ServedConfig | None:
    """The model that the options name; None without --endpoint.

    Raises BadInput for options that do not go together, an address that cannot be asked, and a key that is not set.
    """
    settings = {field: value for field in OPTIONS if (value := getattr(options, field)) is not None}
    if options.endpoint is None:
        for field, setting in settings.items():
            raise BadInput(key=OPTIONS[field], found=setting, expected="--endpoint with it")
        return None
    key = ("--key-env", options.key_env)
    check_address("--endpoint", options.endpoint, key, plain_http=bool(options.plain_http))
    read_secret(*key)
    if "omit" in settings:
        settings["omit"] = tuple(filter(None, (name.strip() for name in options.omit.split(","))))
    return ServedConfig(endpoint=options.endpoint, **settings)
