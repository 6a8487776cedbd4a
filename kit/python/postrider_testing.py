"""Tests of an application that enqueues with Postrider: what it enqueued, and what would be delivered.

It is a plugin of pytest with the fixture `outbox`; without pytest, make an `Outbox`. It runs the program `postrider` from the
PATH, or the one that the variable POSTRIDER names. It must not change anything but the outbox of the database that it is given.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field

import pytest

# The first id that a message can have from now on, and those that are there already: a batch's ids run ahead of the clock.
_START = """
    with first as (
        select (lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid as id
    )
    select json_build_array(first.id, array_agg(m.message_id) filter (where m.message_id is not null))::text
    from first left join {schema}.messages m on m.message_id >= first.id
    group by first.id
"""
_MESSAGES = "select to_jsonb(m)::text from {schema}.messages m where m.message_id >= '{first}' order by m.message_id"
# What would lead a drain to another outbox, or away from its output.
_FOREIGN = ("CLOUD_INGESTION_URL", "POSTRIDER_", "OUTBOX_")


@dataclass
class Outbox:
    """The outbox of one database. Its calls see what was enqueued since the last `start`."""

    database_url: str
    schema: str = "outbox"
    _first: str = "00000000-0000-0000-0000-000000000000"
    _older: set = field(default_factory=set)

    def migrate(self):
        """Creates the outbox, or brings it up to date."""
        self._run("migrate", "up")

    def start(self):
        """Forgets the messages that are there."""
        [start] = self._query(None, _START.format(schema=self.schema))
        self._first, self._older = start[0], set(start[1] or ())

    def enqueued(self, connection=None):
        """The messages in the order of their ids. With the connection of a transaction that is still open, its own too."""
        rows = self._query(connection, _MESSAGES.format(schema=self.schema, first=self._first))
        return [row for row in rows if row["message_id"] not in self._older]

    def assert_enqueued(self, connection=None, *, times=1, **expected):
        """That many messages have these fields, such as topic, payload, lane or dedupe_key. Returns these messages."""
        messages = self.enqueued(connection)
        unknown = {name for message in messages for name in expected if name not in message}
        if unknown:
            raise TypeError(f"a message has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(messages[0]))}")
        found = [message for message in messages if all(message[name] == value for name, value in expected.items())]
        shown = [{name: message[name] for name in ("topic", *expected)} for message in messages]
        assert len(found) == times, f"{len(found)} instead of {times} with {expected}; enqueued were: {shown}"
        return found

    def drain(self, sink="default"):
        """Delivers what is due for this sink, to nobody. Returns the messages as a relay hands them to a sink."""
        lines = self._run("drain", "--stdout", "--sink", sink).splitlines()
        messages = [json.loads(line) for line in lines]
        return [m for m in messages if m["message_id"] >= self._first and m["message_id"] not in self._older]

    def _query(self, connection, sql):
        if connection is None:
            import psycopg

            with psycopg.connect(self.database_url) as own:
                return self._query(own, sql)
        if hasattr(connection, "get_bind"):  # a session of SQLAlchemy
            connection = connection.connection()
        if hasattr(connection, "exec_driver_sql"):  # a connection of SQLAlchemy
            connection = connection.connection
        with connection.cursor() as cursor:
            cursor.execute(sql)
            rows = cursor.fetchall()
        return [json.loads(next(iter(row.values() if isinstance(row, dict) else row))) for row in rows]

    def _run(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        environment |= {"DATABASE_URL": self.database_url, "POSTRIDER_SCHEMA": self.schema}
        ran = subprocess.run(
            [os.environ.get("POSTRIDER", "postrider"), *arguments], env=environment, capture_output=True, text=True
        )
        if ran.returncode != 0:
            raise RuntimeError(f"postrider {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr.strip()}")
        return ran.stdout


@pytest.fixture(scope="session")
def outbox_database_url():
    """The database of the tests. Override it in conftest.py if it is not in DATABASE_URL."""
    return os.environ["DATABASE_URL"]


@pytest.fixture(scope="session")
def migrated_outbox(outbox_database_url):
    """Once for all tests."""
    outbox = Outbox(outbox_database_url)
    outbox.migrate()
    return outbox


@pytest.fixture
def outbox(migrated_outbox):
    """The outbox, for one test: it sees what this test enqueues."""
    migrated_outbox.start()
    return migrated_outbox
