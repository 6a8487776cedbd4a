"""Places orders with psycopg 3. The order's row and its message are written in one transaction of the application.

It needs DATABASE_URL, an outbox (`postrider migrate up`) and the table of ../schema.sql.
"""

import os

import psycopg
from psycopg.types.json import Jsonb

ENQUEUE = """
    select message_id, sequence_id, created
    from outbox.enqueue(topic => %s, payload => %s, lane => %s, dedupe_key => %s)
"""


def place_order(connection, order, customer, items):
    """Call it in a transaction. Jsonb() is needed: psycopg turns a plain list into an array of PostgreSQL."""
    connection.execute("insert into orders values (%s, %s) on conflict do nothing", (order, customer))
    placed = ("order.placed", Jsonb({"order": order}), customer, f"order-{order}/placed")
    _, number, created = connection.execute(ENQUEUE, placed).fetchone()
    connection.execute(ENQUEUE, ("items.reserved", Jsonb(items), customer, f"order-{order}/reserved"))
    print(f"order {order}: created {created}, number {number} of {customer}")


# With autocommit each block below is a transaction; without it the blocks would be savepoints of one long transaction.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    with connection.transaction():
        place_order(connection, 10, "customer-1", ["lamp", "bulb"])

    # The same request again: its keys are known. Nothing is written, and created is False.
    with connection.transaction():
        place_order(connection, 10, "customer-1", ["lamp", "bulb"])

    # A rollback takes both along, and the lane's number is given again.
    try:
        with connection.transaction():
            place_order(connection, 11, "customer-1", ["desk"])
            raise RuntimeError("the card was refused")
    except RuntimeError as error:
        found = "select (select count(*) from orders where id = 11), count(*) from outbox.find_keys('order-11/placed')"
        print(f"{error}: orders and messages left: {connection.execute(found).fetchone()}")

    # What breaks a rule of the outbox is an error with the SQLSTATE 22023, and a hint that says what to do.
    try:
        connection.execute(ENQUEUE, ("order.placed", Jsonb({}), "", None))
    except psycopg.errors.InvalidParameterValue as error:
        print(f"{error.sqlstate}: {error.diag.message_primary}. {error.diag.message_hint}")
