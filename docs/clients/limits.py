"""Limits from Python, through a Redis Cluster: pip install redis; python limits.py HOST:PORT USER"""
import sys

from redis.cluster import RedisCluster

host, port = sys.argv[1].split(":")
user = sys.argv[2]
r = RedisCluster(host=host, port=int(port))
requests, search = f"{{{user}}}:requests", f"{{{user}}}:search"

allowed, limit, remaining, retry_after_ms, reset_after_ms = r.execute_command("RL.SLIDE", requests, 100, "60s")
print(f"SLIDE allowed={allowed} limit={limit} remaining={remaining}")

allowed, limit, remaining, *_ = r.execute_command("RL.BUCKET", search, 200, 100, "1h", 5)
print(f"BUCKET allowed={allowed} limit={limit} remaining={remaining}")

# Both or none.
allowed, retry_after_ms, limits = r.execute_command(
    "RL.MULTI", requests, "SLIDE 100 60s", search, "BUCKET 200 100 1h 5"
)
print(f"MULTI allowed={allowed} remaining={','.join(str(each[2]) for each in limits)}")
