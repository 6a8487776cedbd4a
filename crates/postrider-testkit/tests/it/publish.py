"""Publishes one message with the library of its field: KIND URL SUBJECT BODY. Returns when the broker has it."""

import asyncio
import sys
import threading
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
    address = urlsplit(url)
    # The second round tells that the broker is done with the first, and has saved it.
    for topic, body in [(topic, body), ("elsewhere", "")]:
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5, reconnect_on_failure=False)
        ended = threading.Event()
        client.on_disconnect = lambda _client, _data, _flags, reason, _properties: print(reason) or ended.set()
        client.username_pw_set(address.username, address.password)
        client.connect(address.hostname, address.port)
        client.on_publish = lambda client, *_: client.disconnect()
        sent = client.publish(topic, body, qos=1, properties=properties)
        client.loop_start()
        assert ended.wait(60)
        assert sent.is_published(), "the server did not take it"


globals()[sys.argv[1]](*sys.argv[2:])
