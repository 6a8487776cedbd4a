"""Consumes a JetStream stream with nats-py: URL STREAM [SUBJECT…]

With subjects, a stream on files is made of them unless it exists. The position is kept here: where the broker has sent
something that did not come through, because it was killed or slow, a new consumer begins behind the last message that
did. So each message arrives once, in the order of the stream.
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
    last = 0
    subscription = await start_behind(jetstream, stream, last)
    arrivals.ready()
    while True:
        try:
            last, complete = await fetch(subscription, last)
            if not complete:
                subscription = await start_behind(jetstream, stream, last)
        except (nats.errors.Error, asyncio.TimeoutError) as problem:
            arrivals.complain(problem)
            await asyncio.sleep(0.1)


async def start_behind(jetstream, stream, last):
    config = ConsumerConfig(
        ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=last + 1
    )
    return await jetstream.pull_subscribe("", durable=f"test-{uuid.uuid4().hex}", stream=stream, config=config)


async def fetch(subscription, last):
    """The last message that came, and whether it is also the last that was sent."""
    try:
        messages = await subscription.fetch(100, timeout=1)
    except asyncio.TimeoutError:
        return last, (await subscription.consumer_info()).delivered.stream_seq <= last
    for message in messages:
        sequence = message.metadata.sequence
        # The first of a consumer is the next there is; later ones follow without a gap.
        if sequence.stream != last + 1 and sequence.consumer != 1:
            return last, False
        headers = (message.headers or {}).items()
        arrivals.arrived(message.subject, message.data, sequence.stream, headers=headers)
        last = sequence.stream
    return last, True


arrivals.end_with_the_test()
asyncio.run(consume(sys.argv[1], sys.argv[2], sys.argv[3:]))
