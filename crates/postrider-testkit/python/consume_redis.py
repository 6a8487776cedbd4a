"""Consumes streams with redis-py: URL STREAM…

The field `body` is the body and `key` the key; the other fields are headers. The position is kept here, so an entry
arrives once however often the connection breaks.
"""

import sys
import time

import redis

import arrivals

arrivals.end_with_the_test()
url, *streams = sys.argv[1:]
# A timeout longer than the blocking read: a stalled server looks like a broken connection.
client = redis.Redis.from_url(url, socket_timeout=5)
positions = dict.fromkeys(streams, "0")
client.ping()
arrivals.ready()
while True:
    try:
        answer = client.xread(positions, count=100, block=1000)
    except (redis.ConnectionError, redis.TimeoutError) as problem:
        arrivals.complain(problem)
        time.sleep(0.1)
        continue
    for stream, entries in answer:
        for identity, fields in entries:
            body = fields.pop(b"body", b"")
            key = fields.pop(b"key", None)
            headers = [(name.decode(), value) for name, value in fields.items()]
            arrivals.arrived(stream.decode(), body, identity.decode(), key, headers)
            positions[stream.decode()] = identity
