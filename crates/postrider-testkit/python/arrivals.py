"""What the consumers of this folder share: how they tell the test of a message, and how they end.

A message is one line of JSON on standard output, printed before it is acknowledged. Anything else that is printed is
shown when the test fails. The end of standard input, which comes when the test process ends, ends the consumer.
"""

import base64
import json
import os
import sys
import threading


def end_with_the_test():
    def wait():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def ready():
    """Everything that is published from now on will arrive."""
    print(json.dumps({"ready": True}), flush=True)


def arrived(subject, body, identity, key=None, headers=(), partition=None):
    """headers: pairs of a name and bytes or text; of a name that comes twice the last counts."""
    line = {
        "subject": subject,
        "key_base64": None if key is None else encoded(key),
        "headers": {name: encoded(value) for name, value in headers},
        "body_base64": encoded(body),
        "partition": partition,
        "id": str(identity),
    }
    print(json.dumps(line), flush=True)


def encoded(value):
    if isinstance(value, str):
        value = value.encode()
    return base64.b64encode(value or b"").decode()


def complain(problem):
    """Tells of a failure that the consumer gets over by itself."""
    print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
