"""Tests of the plugin itself, on a database of its own (DATABASE_URL). Run by examples/languages/python/run."""

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

ENQUEUE = "select outbox.enqueue(topic => 'order.placed', payload => '{\"order\": 1}', lane => 'ann')"


@pytest.fixture
def connection(outbox_database_url):
    with psycopg.connect(outbox_database_url, autocommit=True) as connection:
        yield connection


def test_what_is_missing_or_twice_is_said(connection, outbox):
    connection.execute(ENQUEUE)
    with pytest.raises(AssertionError, match="0 instead of 1 with .*order.lost.*order.placed"):
        outbox.assert_enqueued(topic="order.lost")
    with pytest.raises(AssertionError, match="0 instead of 1"):
        outbox.assert_enqueued(topic="order.placed", payload={"order": 2})
    with pytest.raises(AssertionError, match="1 instead of 0"):
        outbox.assert_enqueued(lane="ann", times=0)
    with pytest.raises(TypeError, match="a message has no topc"):
        outbox.assert_enqueued(topc="order.placed")
    connection.execute(ENQUEUE)
    with pytest.raises(AssertionError, match="2 instead of 1"):
        outbox.assert_enqueued(topic="order.placed")


def test_only_what_came_since_the_start_is_seen(connection, outbox):
    # The ids of a batch run ahead of the clock.
    connection.execute("select outbox.enqueue_many(topic => array_fill('old'::text, array[5000]), "
                       "payload => array_fill('1'::jsonb, array[5000]))")
    outbox.start()
    connection.execute(ENQUEUE)
    assert [message["topic"] for message in outbox.enqueued()] == ["order.placed"]
    assert [message["topic"] for message in outbox.drain()] == ["order.placed"]


def test_a_session_of_sqlalchemy_sees_its_own(outbox_database_url, outbox):
    engine = create_engine(make_url(outbox_database_url).set(drivername="postgresql+psycopg"))
    with Session(engine) as session:
        session.execute(text(ENQUEUE.replace(": 1", "\\: 1")))
        outbox.assert_enqueued(session, topic="order.placed")
        outbox.assert_enqueued(session.connection(), topic="order.placed")
    outbox.assert_enqueued(times=0)


def test_a_drain_delivers_one_sink(connection, outbox):
    connection.execute("select outbox.add_route('mail', 'mail.*')")
    connection.execute("select outbox.enqueue(topic => 'mail.sent', payload => '1')")
    connection.execute("select outbox.enqueue(topic => 'mail.later', payload => '2', delay_seconds => 60)")
    connection.execute("select outbox.remove_route('mail', 'mail.*')")
    assert outbox.drain() == []
    assert [message["payload"] for message in outbox.drain("mail")] == [1]


def test_a_program_that_fails_is_an_error(outbox_database_url, monkeypatch, outbox):
    monkeypatch.setattr(outbox, "schema", "no_such_schema")
    with pytest.raises(RuntimeError, match="postrider drain .* ended with"):
        outbox.drain()
