"""Places an order with SQLAlchemy 2. The mapped row and its message are written in the session's transaction.

It needs DATABASE_URL, an outbox (`postrider migrate up`) and the table of ../schema.sql.
"""

import os

from sqlalchemy import BigInteger, Text, bindparam, create_engine, make_url, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    customer: Mapped[str] = mapped_column(Text)


# The type makes JSON of dicts and lists alike. JSON's null is JSON.NULL; None is an SQL null, so "no payload".
ENQUEUE = text("""
    select message_id, sequence_id, created
    from outbox.enqueue(topic => :topic, payload => :payload, lane => :lane, dedupe_key => :dedupe_key)
""").bindparams(bindparam("payload", type_=JSONB))


def enqueue(session, topic, payload, lane=None, dedupe_key=None):
    return session.execute(ENQUEUE, {"topic": topic, "payload": payload, "lane": lane, "dedupe_key": dedupe_key}).one()


engine = create_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"))

with Session(engine) as session, session.begin():
    session.add(Order(id=12, customer="customer-2"))
    enqueue(session, "order.placed", {"order": 12}, lane="customer-2", dedupe_key="order-12/placed")
    message = enqueue(session, "items.reserved", ["lamp", "bulb"], lane="customer-2")
    print(f"order 12: created {message.created}, number {message.sequence_id} of customer-2")

with Session(engine) as session:
    try:
        enqueue(session, "", {})
    except DBAPIError as error:
        print(f"{error.orig.sqlstate}: {error.orig.diag.message_primary}. {error.orig.diag.message_hint}")
