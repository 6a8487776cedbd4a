"""Publishes one message with the library of its field: KIND URL SUBJECT BODY. Returns when the broker has it."""

import asyncio
import sys
from urllib.parse import urlsplit


def kafka(broker, topic, body):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    producer.produce(topic, body, key="k", headers={"colour": "blue"}, partition=1)
    assert producer.flush(60) == 0


def nats(url, subject, body):
    import nats as library

    async def publish():
        connection = await library.connect(url)
        await connection.jetstream().publish(subject, body.encode(), headers={"colour": "blue"})
        await connection.close()

    asyncio.run(publish())


def rabbitmq(url, routing_key, body):
    import pika

    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(headers={"colour": "blue"}, delivery_mode=2, message_id="m1")
    channel.basic_publish("events", routing_key, body, properties, mandatory=True)


def redis(url, stream, body):
    import redis as library

    library.Redis.from_url(url).xadd(stream, {"body": body, "key": "k", "colour": "blue"})


def mqtt(url, topic, body):
    from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = ("colour", "blue")
    properties.ContentType = "text/plain"
    # The second round tells that the broker is done with the first, and has saved it.
    for _ in range(2):
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        refused = []
        client.on_connect = lambda _c, _d, _f, reason, _p: reason.is_failure and refused.append(reason)
        address = urlsplit(url)
        client.username_pw_set(address.username, address.password)
        client.connect(address.hostname, address.port)
        client.loop_start()
        sent = client.publish(topic, body, qos=1, properties=properties)
        topic, body = "elsewhere", ""
        while not sent.is_published():
            assert not refused, refused
            try:
                sent.wait_for_publish(0.1)
            except RuntimeError:
                pass
        client.disconnect()
        client.loop_stop()


globals()[sys.argv[1]](*sys.argv[2:])
