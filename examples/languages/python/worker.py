"""Delivers what is due for the sink `default`, then ends: claims a batch, handles each message, completes them together.

It needs DATABASE_URL. A service would wait and repeat. `postrider run` does the same with retries, limits and metrics.
"""

import os
import socket

import psycopg

WORKER = f"{socket.gethostname()}-{os.getpid()}"
# lane_run: one message of a lane at a time. What is behind one that fails must not be sent before it.
CLAIM = """
    select message_id, lease_token, topic, payload, attempt_count
    from outbox.claim(worker_id => %s, batch_size => 100, lease_seconds => 60, lane_run => 1)
"""
COMPLETE = """
    select count(*) from outbox.complete_many(
        message_id => %s, lease_token => %s, state => %s, retry_after_seconds => %s, error_message => %s,
        worker_id => %s)
"""


def handle(topic, payload):
    """May see a message a second time: delivery is at least once."""
    print(f"{topic} {payload}")


# With autocommit the claim is committed before anything is handled.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    while claimed := connection.execute(CLAIM, (WORKER,)).fetchall():
        outcomes = []
        for message_id, token, topic, payload, attempts in claimed:
            try:
                handle(topic, payload)
                outcomes.append((message_id, token, "DISPATCHED", None, None))
            except Exception as error:
                # Due again after 2, 4, 8 … seconds; dead after the tenth attempt.
                outcomes.append((message_id, token, "RETRYABLE", 2**attempts, str(error)))
        columns = [list(column) for column in zip(*outcomes)]
        done = connection.execute(COMPLETE, (*columns, WORKER)).fetchone()[0]
        if done < len(claimed):
            print(f"{len(claimed) - done} leases were lost: another worker has these messages")
