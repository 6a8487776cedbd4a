"""Drives pgqueuer (PyPI) and pgmq (SQL): `peers.py NAME VERB [COUNT] [PARALLEL]`, with the database in DATABASE_URL.

Prints the seconds that the work took. Called by `run`; each system is used through its own public functions.
"""

import asyncio
import json
import os
import sys
import time

import asyncpg

name, verb = sys.argv[1:3]
count, parallel = [int(text) for text in (sys.argv[3:] + ["1", "1"])[:2]]
url = os.environ["DATABASE_URL"]
payload = json.dumps({"data": os.environ["PAYLOAD"]})


async def timed(work):
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def repeat(times, once):
    for _ in range(times):
        await once()


async def single(connect):
    """One message in each transaction, by producers with a connection each."""
    producers = [await connect() for _ in range(parallel)]
    return await timed(asyncio.gather(*(repeat(count // parallel, once) for once in producers)))


async def pgmq():
    connection = await asyncpg.connect(url)
    if verb == "setup":
        with open(os.environ["PGMQ_SQL"], encoding="utf-8") as file:
            await connection.execute("create schema if not exists pgmq; " + file.read())
        await connection.execute("select pgmq.create('bench')")
        return None
    if verb == "single":
        async def connect():
            statement = await (await asyncpg.connect(url)).prepare("select pgmq.send('bench', $1::text::jsonb)")
            return lambda: statement.fetchval(payload)
        return await single(connect)
    if verb == "batch":
        sql = "select count(*) from pgmq.send_batch('bench', $1::text[]::jsonb[])"
        return await timed(repeat(count // parallel, lambda: connection.execute(sql, [payload] * parallel)))

    async def drain():
        while rows := await connection.fetch("select msg_id, message from pgmq.read('bench', 60, 1000)"):
            await connection.execute("select pgmq.archive('bench', $1::bigint[])", [row["msg_id"] for row in rows])
    return await timed(drain())


async def pgqueuer():
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.domain.types import QueueExecutionMode
    from pgqueuer.queries import Queries

    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    body = payload.encode()
    if verb == "setup":
        await queries.install()
        return None
    if verb == "single":
        async def connect():
            own = Queries(AsyncpgDriver(await asyncpg.connect(url)))
            return lambda: own.enqueue("bench", body)
        return await single(connect)
    if verb == "batch":
        many = (["bench"] * parallel, [body] * parallel, [0] * parallel)
        return await timed(repeat(count // parallel, lambda: queries.enqueue(*many)))
    consumer = PgQueuer(AsyncpgDriver(connection))

    @consumer.entrypoint("bench")
    async def process(_job):
        pass

    return await timed(consumer.qm.run(mode=QueueExecutionMode.drain, batch_size=1000))


seconds = asyncio.run({"pgmq": pgmq, "pgqueuer": pgqueuer}[name]())
if seconds is not None:
    print(f"{seconds:.4f}")
