"""Tests of an application that enqueues, with the fixture `outbox` of kit/python.

It needs DATABASE_URL, the table of ../schema.sql, and the program `postrider` in the PATH.
"""

import os

import psycopg
import pytest
from psycopg.types.json import Jsonb


def place_order(connection, order):
    """What is tested: the application's own code."""
    connection.execute("insert into orders values (%s, 'ann')", (order,))
    connection.execute(
        "select outbox.enqueue(topic => 'order.placed', payload => %s, lane => 'ann')", (Jsonb({"order": order}),)
    )


@pytest.fixture
def connection():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        yield connection


def test_an_order_is_announced(connection, outbox):
    with connection.transaction():
        place_order(connection, 13)
        # Within the transaction, over its own connection.
        outbox.assert_enqueued(connection, topic="order.placed", payload={"order": 13})
        outbox.assert_enqueued(topic="order.placed", times=0)
    # After the commit, everybody sees it.
    [message] = outbox.assert_enqueued(topic="order.placed", payload={"order": 13}, lane="ann")

    # What a relay would deliver, in the order of a lane. It is delivered then, and not due a second time.
    assert [(m["message_id"], m["payload"]) for m in outbox.drain()] == [(message["message_id"], {"order": 13})]
    assert outbox.drain() == []


def test_a_refused_order_is_not_announced(connection, outbox):
    with pytest.raises(RuntimeError), connection.transaction():
        place_order(connection, 14)
        raise RuntimeError("the card was refused")
    outbox.assert_enqueued(times=0)
    assert outbox.drain() == []
