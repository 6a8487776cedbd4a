// Places orders with database/sql, here over lib/pq. The order's row and its message are written in one transaction of the
// application. It needs DATABASE_URL, an outbox (`postrider migrate up`) and the table of ../schema.sql.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/lib/pq"
)

const enqueueSQL = `
	select sequence_id, created
	from outbox.enqueue(topic => $1, payload => $2::jsonb, lane => nullif($3, ''), dedupe_key => nullif($4, ''))`

// Without a lane or a dedupe key, leave it empty.
type message struct {
	topic     string
	payload   any
	lane      string
	dedupeKey string
}

// As a string: with binary_parameters=yes, lib/pq sends a []byte in a form that jsonb refuses.
func enqueue(ctx context.Context, tx *sql.Tx, m message) (number sql.NullInt64, created bool, err error) {
	payload, err := json.Marshal(m.payload)
	if err != nil {
		return number, false, err
	}
	err = tx.QueryRowContext(ctx, enqueueSQL, m.topic, string(payload), m.lane, m.dedupeKey).Scan(&number, &created)
	return number, created, err
}

func placeOrder(ctx context.Context, tx *sql.Tx, order int64, customer string, items []string) error {
	_, err := tx.ExecContext(ctx, "insert into orders values ($1, $2) on conflict do nothing", order, customer)
	if err != nil {
		return err
	}
	placed := message{"order.placed", map[string]int64{"order": order}, customer, fmt.Sprintf("order-%d/placed", order)}
	number, created, err := enqueue(ctx, tx, placed)
	if err != nil {
		return err
	}
	reserved := message{"items.reserved", items, customer, fmt.Sprintf("order-%d/reserved", order)}
	if _, _, err := enqueue(ctx, tx, reserved); err != nil {
		return err
	}
	fmt.Printf("order %d: created %t, number %d of %s\n", order, created, number.Int64, customer)
	return nil
}

func inTransaction(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // changes nothing after a commit
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func run(ctx context.Context, db *sql.DB) error {
	place := func(tx *sql.Tx) error { return placeOrder(ctx, tx, 30, "customer-5", []string{"lamp", "bulb"}) }
	if err := inTransaction(ctx, db, place); err != nil {
		return err
	}
	// The same request again: its keys are known. Nothing is written, and created is false.
	if err := inTransaction(ctx, db, place); err != nil {
		return err
	}

	// A rollback takes both along, and the lane's number is given again.
	refused := inTransaction(ctx, db, func(tx *sql.Tx) error {
		if err := placeOrder(ctx, tx, 31, "customer-5", []string{"desk"}); err != nil {
			return err
		}
		return errors.New("the card was refused")
	})
	var orders, messages int
	err := db.QueryRowContext(ctx, `
		select (select count(*) from orders where id = 31), count(*) from outbox.find_keys('order-31/placed')`,
	).Scan(&orders, &messages)
	if err != nil {
		return err
	}
	fmt.Printf("%v: orders and messages left: %d, %d\n", refused, orders, messages)

	// What breaks a rule of the outbox is an error with the SQLSTATE 22023, and a hint that says what to do.
	err = inTransaction(ctx, db, func(tx *sql.Tx) error {
		_, _, err := enqueue(ctx, tx, message{topic: "", payload: struct{}{}})
		return err
	})
	var broken *pq.Error
	if !errors.As(err, &broken) {
		return fmt.Errorf("an empty topic was accepted: %w", err)
	}
	fmt.Printf("%s: %s. %s\n", broken.Code, broken.Message, broken.Hint)
	return nil
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := run(context.Background(), db); err != nil {
		log.Fatal(err)
	}
}
