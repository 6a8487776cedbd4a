"""Creates a topic: BROKER TOPIC PARTITIONS. Called by kafka.rs; works with any Kafka."""

import sys

from confluent_kafka.admin import AdminClient, NewTopic

broker, topic, partitions = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": broker})
for created in admin.create_topics([NewTopic(topic, int(partitions), 1)], operation_timeout=60).values():
    created.result()
