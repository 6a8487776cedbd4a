"""Consumes topics with paho-mqtt, MQTT 5, quality of service 1: URL CLIENT-ID FILTER

The session is persistent: what is published while the client is away arrives when it comes back under the same id.
User properties are headers; the content type and the like have the prefix `mqtt.`.
"""

import sys
from urllib.parse import urlsplit

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import arrivals

SESSION_SECONDS = 3600
OF_THE_PROTOCOL = ("ContentType", "CorrelationData", "ResponseTopic", "MessageExpiryInterval", "PayloadFormatIndicator")


def headers(properties):
    yield from getattr(properties, "UserProperty", [])
    for name in OF_THE_PROTOCOL:
        if hasattr(properties, name):
            value = getattr(properties, name)
            yield f"mqtt.{name}", str(value) if isinstance(value, int) else value


def on_connect(client, _data, _flags, reason, _properties):
    if reason.is_failure:
        print(f"refused: {reason}", file=sys.stderr, flush=True)
    else:
        client.subscribe(topic_filter, qos=1)


def on_subscribe(client, _data, _mid, reasons, _properties):
    if any(reason.is_failure for reason in reasons):
        print(f"not subscribed: {reasons}", file=sys.stderr, flush=True)
    elif not client.user_data_get():
        client.user_data_set("was ready")
        arrivals.ready()


def on_message(client, _data, message):
    arrivals.arrived(message.topic, message.payload, message.mid, headers=headers(message.properties))
    client.ack(message.mid, message.qos)


arrivals.end_with_the_test()
url, client_id, topic_filter = sys.argv[1:]
address = urlsplit(url)
client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5, manual_ack=True)
client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
client.on_disconnect = lambda _client, _data, _flags, reason, _properties: arrivals.complain(ConnectionError(reason))
client.reconnect_delay_set(min_delay=1, max_delay=1)
if address.username:
    client.username_pw_set(address.username, address.password)
session = Properties(PacketTypes.CONNECT)
session.SessionExpiryInterval = SESSION_SECONDS
client.connect(address.hostname, address.port, clean_start=False, properties=session)
client.loop_forever()
