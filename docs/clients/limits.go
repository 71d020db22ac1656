// Limits from Go, through a Redis Cluster: go run limits.go HOST:PORT USER
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
)

func main() {
	cluster := redisc.Cluster{StartupNodes: []string{os.Args[1]}}
	defer cluster.Close()
	if err := cluster.Refresh(); err != nil {
		log.Fatal(err)
	}
	conn, err := redisc.RetryConn(cluster.Get(), 3, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	requests, search := "{"+os.Args[2]+"}:requests", "{"+os.Args[2]+"}:search"

	five, err := redis.Int64s(conn.Do("RL.SLIDE", requests, 100, "60s"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("SLIDE allowed=%d limit=%d remaining=%d\n", five[0], five[1], five[2])

	five, err = redis.Int64s(conn.Do("RL.BUCKET", search, 200, 100, "1h", 5))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("BUCKET allowed=%d limit=%d remaining=%d\n", five[0], five[1], five[2])

	// Both or none.
	reply, err := redis.Values(conn.Do("RL.MULTI", requests, "SLIDE 100 60s", search, "BUCKET 200 100 1h 5"))
	if err != nil {
		log.Fatal(err)
	}
	limits, _ := redis.Values(reply[2], nil)
	first, _ := redis.Int64s(limits[0], nil)
	second, _ := redis.Int64s(limits[1], nil)
	fmt.Printf("MULTI allowed=%d remaining=%d,%d\n", reply[0], first[2], second[2])
}
