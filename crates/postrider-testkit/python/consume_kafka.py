"""Consumes whole topics, which must exist, with confluent-kafka: BROKER TOPIC…

The partitions are assigned by hand and the positions kept here: no group has to be formed, and a record arrives once
however often the connection breaks.
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import arrivals

METADATA_SECONDS = 60

arrivals.end_with_the_test()
broker, *topics = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": broker,
        "group.id": "postrider-test",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": 500,
    }
)
partitions = []
for topic in topics:
    metadata = consumer.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
    if metadata.error:
        sys.exit(f"the topic {topic}: {metadata.error}")
    partitions += [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in metadata.partitions]
consumer.assign(partitions)
arrivals.ready()
while True:
    message = consumer.poll(1.0)
    if message is None:
        continue
    if message.error():
        print(message.error(), file=sys.stderr, flush=True)
        continue
    arrivals.arrived(
        message.topic(),
        message.value(),
        message.offset(),
        message.key(),
        message.headers() or (),
        message.partition(),
    )
