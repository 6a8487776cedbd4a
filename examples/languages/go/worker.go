// Delivers what is due for the sink `default`, then ends: claims a batch, handles each message, completes them together.
// It needs DATABASE_URL. A service would wait and repeat. `postrider run` does the same with retries, limits and metrics.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/lib/pq"
)

const (
	// lane_run: one message of a lane at a time. What is behind one that fails must not be sent before it.
	claimSQL = `
	select message_id, lease_token, topic, payload, attempt_count
	from outbox.claim(worker_id => $1, batch_size => 100, lease_seconds => 60, lane_run => 1)`
	completeSQL = `
	select count(*) from outbox.complete_many(
		message_id => $1, lease_token => $2, state => $3, retry_after_seconds => $4, error_message => $5,
		worker_id => $6)`
)

// handle may see a message a second time: delivery is at least once.
func handle(topic string, payload []byte) error {
	_, err := fmt.Printf("%s %s\n", topic, payload)
	return err
}

// deliver claims and handles one batch, and says how many messages it had. The claim is committed before anything is handled.
func deliver(ctx context.Context, db *sql.DB, worker string) (int, error) {
	rows, err := db.QueryContext(ctx, claimSQL, worker)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids, tokens, states []string
	var delays []sql.NullInt64
	var errors []sql.NullString
	for rows.Next() {
		var id, token, topic string
		var payload []byte
		var attempts int64
		if err := rows.Scan(&id, &token, &topic, &payload, &attempts); err != nil {
			return 0, err
		}
		state, delay, message := "DISPATCHED", sql.NullInt64{}, sql.NullString{}
		if err := handle(topic, payload); err != nil {
			// Due again after 2, 4, 8 … seconds; dead after the tenth attempt.
			state, delay = "RETRYABLE", sql.NullInt64{Int64: 1 << attempts, Valid: true}
			message = sql.NullString{String: err.Error(), Valid: true}
		}
		ids, tokens, states = append(ids, id), append(tokens, token), append(states, state)
		delays, errors = append(delays, delay), append(errors, message)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	var done int
	err = db.QueryRowContext(ctx, completeSQL, pq.Array(ids), pq.Array(tokens), pq.Array(states), pq.Array(delays),
		pq.Array(errors), worker).Scan(&done)
	if err == nil && done < len(ids) {
		log.Printf("%d leases were lost: another worker has these messages", len(ids)-done)
	}
	return len(ids), err
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	host, _ := os.Hostname()
	worker := fmt.Sprintf("%s-%d", host, os.Getpid())
	for {
		count, err := deliver(context.Background(), db, worker)
		if err != nil {
			log.Fatal(err)
		}
		if count == 0 {
			return
		}
	}
}
