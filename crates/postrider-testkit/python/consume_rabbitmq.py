"""Consumes a durable queue with pika: URL EXCHANGE TYPE BINDING-KEY QUEUE

Declares the exchange, the queue and the binding, all durable. Headers of the message keep their names; its properties
have the prefix `amqp.`. A message whose acknowledgement got lost arrives again, with `amqp.redelivered`.
"""

import sys
import time

import pika
from pika.exceptions import AMQPError

import arrivals

PROPERTIES = (
    "app_id", "content_encoding", "content_type", "correlation_id", "delivery_mode", "expiration", "message_id",
    "priority", "reply_to", "timestamp", "type",
)  # fmt: skip


def headers(method, properties):
    for name, value in (properties.headers or {}).items():
        yield name, value if isinstance(value, (bytes, str)) else str(value)
    for name in PROPERTIES:
        value = getattr(properties, name)
        if value is not None:
            yield f"amqp.{name}", str(value)
    if method.redelivered:
        yield "amqp.redelivered", "true"


def consume(url, exchange, kind, binding_key, queue):
    was_ready = False
    while True:
        try:
            channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
            channel.exchange_declare(exchange, kind, durable=True)
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, exchange, binding_key)
            if not was_ready:
                was_ready = True
                arrivals.ready()
            for method, properties, body in channel.consume(queue):
                identity = properties.message_id or method.delivery_tag
                arrivals.arrived(method.routing_key, body, identity, headers=headers(method, properties))
                channel.basic_ack(method.delivery_tag)
        except AMQPError as problem:
            arrivals.complain(problem)
            # Before the first time it is the test's mistake, and it wants to know.
            if not was_ready:
                raise
            time.sleep(0.1)


arrivals.end_with_the_test()
consume(*sys.argv[1:])
