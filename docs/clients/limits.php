<?php
// Limits from PHP, through a Redis Cluster (phpredis): php limits.php HOST:PORT USER
[, $address, $user] = $argv;
$cluster = new RedisCluster(null, [$address]);
$requests = "{{$user}}:requests";
$search = "{{$user}}:search";

// The first argument says which node, by a key that it holds.
[$allowed, $limit, $remaining] = $cluster->rawCommand($requests, "RL.SLIDE", $requests, 100, "60s");
echo "SLIDE allowed=$allowed limit=$limit remaining=$remaining\n";

[$allowed, $limit, $remaining] = $cluster->rawCommand($search, "RL.BUCKET", $search, 200, 100, "1h", 5);
echo "BUCKET allowed=$allowed limit=$limit remaining=$remaining\n";

// Both or none.
[$allowed, , $limits] = $cluster->rawCommand(
    $requests, "RL.MULTI", $requests, "SLIDE 100 60s", $search, "BUCKET 200 100 1h 5"
);
echo "MULTI allowed=$allowed remaining=", implode(",", array_column($limits, 2)), "\n";
