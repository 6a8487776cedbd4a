"""Consumes a JetStream stream with nats-py: URL STREAM [SUBJECT…]

With subjects, a stream on files is made of them unless it exists. The consumer is durable and acknowledges after
printing; a message that is delivered again because the acknowledgement got lost is not printed again.
"""

import asyncio
import sys
import uuid

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

import arrivals


async def complain(problem):
    arrivals.complain(problem)


async def consume(url, stream, subjects):
    connection = await nats.connect(
        url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, ping_interval=2, error_cb=complain
    )
    jetstream = connection.jetstream()
    if subjects:
        await jetstream.add_stream(name=stream, subjects=subjects)
    name = f"test-{uuid.uuid4().hex}"
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, deliver_policy=DeliverPolicy.ALL, ack_wait=5)
    subscription = await jetstream.pull_subscribe("", durable=name, stream=stream, config=config)
    arrivals.ready()
    last = 0
    while True:
        try:
            messages = await subscription.fetch(100, timeout=1)
        except nats.errors.TimeoutError:
            continue
        except nats.errors.Error as problem:
            arrivals.complain(problem)
            await asyncio.sleep(0.1)
            continue
        for message in messages:
            sequence = message.metadata.sequence.stream
            if sequence > last:
                headers = (message.headers or {}).items()
                arrivals.arrived(message.subject, message.data, sequence, headers=headers)
                last = sequence
            await message.ack()


arrivals.end_with_the_test()
asyncio.run(consume(sys.argv[1], sys.argv[2], sys.argv[3:]))
